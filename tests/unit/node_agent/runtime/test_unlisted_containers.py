"""A runtime leaves out of its list what it cannot reach, such as a container whose shim hangs; its process may live on."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer
from nodedevice_agent.runtime.container_events import UNLISTED_SECONDS

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import is_saved, pod


def connected(count: int = 1) -> RuntimeScenario:
    scenario = RuntimeScenario.with_plugin(count)
    scenario.sync()
    return scenario


def unlisted() -> tuple[RuntimeScenario, RunningContainer]:
    scenario = connected().run(pod("p", gpu=1), pod("next", gpu=1))
    made = scenario.create("p")
    scenario.manager.containers.lost()
    scenario.sync()
    return scenario, made


def ended(scenario: RuntimeScenario, after: float) -> list[str]:
    """Containers that count as ended so long after now."""
    return [instance.id for instance in scenario.runtime.overdue(scenario.now + after)]


@pytest.mark.parametrize("is_gone_first", [False, True])
def test_its_device_stays_held_until_the_runtime_reports_its_end(is_gone_first: bool) -> None:
    scenario = connected().run(pod("p", gpu=1), pod("next", gpu=1))
    made = scenario.create("p")
    if is_gone_first:
        scenario.gone("p")
    scenario.manager.containers.lost()
    scenario.answer_all(scenario.sync())
    if not is_gone_first:
        scenario.gone("p")
    assert scenario.held() == {"p/main": ("d0",)}
    assert scenario.snapshot().releasing == 1
    scenario.answer_all(scenario.end(made, "p"))
    assert scenario.held() == {"next/main": ("d0",)}


def test_counts_as_ended_after_a_long_time() -> None:
    scenario, _ = unlisted()
    assert scenario.runtime.next_deadline() is None, "its pod is not over"
    scenario.gone("p")
    scenario.now += 60.0
    scenario.sync()
    scenario.manager.containers.lost()
    assert scenario.runtime.next_deadline() is None, "the runtime may report its end when it is back"
    scenario.sync()
    assert scenario.runtime.next_deadline() == scenario.now - 60.0 + UNLISTED_SECONDS, "not begun again by each list"
    assert ended(scenario, UNLISTED_SECONDS - 60.1) == []
    assert ended(scenario, UNLISTED_SECONDS - 60.0) == ["p-main-1"]


@pytest.mark.parametrize(
    ("state", "is_replaced"),
    [(ContainerState.RUNNING, True), (ContainerState.CREATED, False), (ContainerState.STOPPED, False)],
)
def test_an_instance_that_was_created_while_the_agent_was_disconnected(
    state: ContainerState, is_replaced: bool
) -> None:
    """One that does not run may be older."""
    scenario = connected().run(pod("p", gpu=1))
    first = scenario.create("p")
    second = replace(first, id="p-main-2", state=state)
    scenario.manager.containers.lost()
    scenario.sync(("p", second))
    assert (scenario.manager.containers.find("p", first.id) is None) == is_replaced
    scenario.end(second, "p")
    scenario.gone("p")
    assert (scenario.held() == {}) == is_replaced


def test_survives_a_restart_of_the_agent() -> None:
    scenario, made = unlisted()
    assert is_saved(scenario.effects, durable=False)
    scenario.gone("p")
    after = scenario.rebooted()
    after.happens("pod_events.synced", [])
    after.sync()
    assert after.held() == {"p/main": ("d0",)}
    assert after.runtime.next_deadline() == after.now + UNLISTED_SECONDS
    assert is_saved(after.end(made, "p"), durable=False)
    assert after.held() == {}
    assert after.manager.checkpoint().unlisted == ()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_running_container_whose_sandbox_is_not_listed(is_restarted: bool) -> None:
    scenario = connected().run(pod("p", gpu=1))
    made = scenario.create("p")
    after = scenario.rebooted() if is_restarted else scenario
    shown = replace(made, pod_uid="p" if is_restarted else "")
    after.runtime.synchronized([], [shown], after.now)
    after.settled()
    after.happens("pod_events.synced", [])
    assert after.held() == {"p/main": ("d0",)}
    assert after.runtime.next_deadline() is None, "it is listed"
    after.end(made, "p")
    assert after.held() == {}
