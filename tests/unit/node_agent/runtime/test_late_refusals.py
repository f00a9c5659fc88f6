"""A creation that was allowed and then failed after all: as if it had never been, whether or not the runtime reports its end."""

from pathlib import Path

from nodedevice_agent.devicemanager.effects import CallPreStart
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.runtime.backend import NriBackend

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.runtime.backend_node import BackendNode


async def refused_once(kubelet_dir: Path, *, pre_start_required: bool = False) -> tuple[RuntimeScenario, NriBackend]:
    """A pod whose container was allowed with its device and then refused."""
    scenario = RuntimeScenario.with_plugin(1, options=PluginOptions(pre_start_required=pre_start_required))
    scenario.sync()
    scenario.prepare(scenario.run(pod("p", gpu=1)).effects)
    backend = BackendNode(kubelet_dir, scenario).backend
    assert await backend.create_container(sandbox("p"), container("p")) is not None
    assert list(scenario.manager.containers)
    backend.creation_refused(sandbox("p"), container("p"))
    return scenario, backend


async def test_its_device_is_free_when_the_pod_is_over(tmp_path: Path) -> None:
    scenario, _ = await refused_once(tmp_path)
    scenario.happens("pod_events.gone", "p")
    assert not scenario.manager.book.of_pod("p")
    assert scenario.manager.resources[GPU].use.holders == {}


async def test_its_device_is_prepared_before_the_next_start(tmp_path: Path) -> None:
    scenario, backend = await refused_once(tmp_path, pre_start_required=True)
    calls = [effect for effect in scenario.effects if isinstance(effect, CallPreStart)]
    assert len(calls) == 2
    scenario.happens("pre_started", calls[-1].ticket)
    assert await backend.create_container(sandbox("p"), container("p", number=2)) is not None


async def test_an_end_that_the_runtime_reports_besides_changes_nothing(tmp_path: Path) -> None:
    scenario, backend = await refused_once(tmp_path, pre_start_required=True)
    before = len(scenario.effects)
    backend.container_ended(sandbox("p"), container("p"))
    assert not [effect for effect in scenario.effects[before:] if isinstance(effect, CallPreStart)]


def test_a_creation_that_the_runtime_failed_in_silence_is_replaced_by_the_next() -> None:
    """As CRI-O does where a CDI device is unknown."""
    scenario = RuntimeScenario.with_plugin(1, options=PluginOptions(pre_start_required=True))
    scenario.sync()
    scenario.prepare(scenario.run(pod("p", gpu=1)).effects)
    for number in range(1, 5):
        made = scenario.create("p", number=number)
    scenario.start(made, "p")
    assert [instance.id for instance in scenario.manager.containers] == [made.id]
    assert len([effect for effect in scenario.end(made, "p") if isinstance(effect, CallPreStart)]) == 1
    assert scenario.refusal("p").is_temporary


def test_one_that_has_run_is_not_replaced_by_a_creation() -> None:
    """Only the runtime knows its end."""
    scenario = RuntimeScenario.with_plugin(1)
    scenario.sync()
    scenario.run(pod("p", gpu=1))
    first = scenario.create("p")
    scenario.start(first, "p")
    second = scenario.create("p", number=2)
    assert {instance.id for instance in scenario.manager.containers} == {first.id, second.id}
