"""When devices are free again, and which containers run without theirs: also of those that are unlisted or refused late."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.effects import CallPreStart
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, shown_settings
from nodedevice_agent.runtime.container_events import CREATED_SECONDS, UNLISTED_SECONDS

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox, shows
from tests.unit.node_agent.devicemanager.scenario import GPU, calls, device_ids, is_saved, pod, published
from tests.unit.node_agent.runtime.backend_node import BackendNode


def connected(count: int = 1) -> RuntimeScenario:
    scenario = RuntimeScenario.with_plugin(count)
    scenario.sync()
    return scenario


def running() -> tuple[RuntimeScenario, RunningContainer]:
    """The container of pod p has the device that the pod next waits for."""
    scenario = connected().run(pod("p", gpu=1), pod("next", gpu=1))
    return scenario, scenario.create("p")


def prepared(*pods: Pod) -> RuntimeScenario:
    """The device of the first of them has been prepared."""
    scenario = RuntimeScenario.with_plugin(1, options=PluginOptions(pre_start_required=True))
    scenario.sync()
    scenario.prepare(scenario.run(*pods).effects)
    return scenario


def ended(scenario: RuntimeScenario, after: float) -> list[str]:
    """Containers that count as ended so long after now."""
    return [instance.id for instance in scenario.runtime.overdue(scenario.now + after)]


def over(uid: str) -> Pod:
    return pod(uid, gpu=1, has_ended=True)


class TestEnd:
    @pytest.mark.parametrize("how", ["over", "gone"])
    def test_between_the_ends_of_pod_and_container_it_is_releasing(self, how: str) -> None:
        scenario, made = running()
        (scenario.see(over("p")) if how == "over" else scenario.gone("p"))
        seen = scenario.snapshot()
        assert (seen.allocated, seen.releasing, seen.available) == (0, 1, 0)
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.answer_all(scenario.end(made, "p"))
        assert scenario.held() == {"next/main": ("d0",)}

    @pytest.mark.parametrize(
        ("number", "holder"), [(1, "next/main"), (0, "p/main")], ids=["its sandbox", "an older one"]
    )
    def test_a_removed_sandbox(self, number: int, holder: str) -> None:
        scenario, _ = running()
        scenario.gone("p")
        scenario.runtime.sandbox_removed(sandbox("p", number=number))
        scenario.answer_all(scenario.settled())
        assert scenario.held() == {holder: ("d0",)}

    @pytest.mark.parametrize("state", list(ContainerState))
    def test_containers_after_a_restart(self, state: ContainerState) -> None:
        scenario, made = running()
        after = scenario.rebooted()
        after.happens("pod_events.synced", [])
        assert after.held() == {"p/main": ("d0",)}
        after.sync(("p", container("p", state=state, annotations=made.annotations)))
        assert (after.held() == {}) == (state is ContainerState.STOPPED)

    @pytest.mark.parametrize("message", ["", "cannot reset"], ids=["answered", "failed"])
    def test_a_call_in_flight_delays_the_release(self, message: str) -> None:
        scenario = prepared(pod("p", gpu=1), pod("next", gpu=1))
        (call,) = [e for e in scenario.end(scenario.create("p"), "p") if isinstance(e, CallPreStart)]
        scenario.gone("p")
        assert scenario.snapshot().releasing == 1
        event = ("pre_start_failed", call.ticket, message) if message else ("pre_started", call.ticket)
        scenario.answer_all(scenario.happens(*event))
        assert scenario.held() == {"next/main": ("d0",)}


class TestNeverStarted:
    """The runtime was killed while it started a container: it reports Created ever after."""

    def found(self, *, state: ContainerState = ContainerState.CREATED, pid: int = 0) -> RuntimeScenario:
        scenario, made = running()
        scenario.manager.containers.lost()
        scenario.sync(("p", replace(made, state=state, pid=pid)))
        return scenario

    @pytest.mark.parametrize("found_before", [0.0, 3600.0])
    @pytest.mark.parametrize("how", ["over", "gone"])
    def test_counts_as_ended_after_a_timeout(self, how: str, found_before: float) -> None:
        scenario = self.found()
        scenario.now += found_before
        (scenario.see(over("p")) if how == "over" else scenario.gone("p"))
        assert scenario.held() == {"p/main": ("d0",)}
        assert scenario.runtime.next_deadline() == scenario.now + CREATED_SECONDS
        assert ended(scenario, CREATED_SECONDS - 0.1) == []
        assert ended(scenario, CREATED_SECONDS) == ["p-main-1"]
        scenario.answer_all(scenario.end(container("p"), "p"))
        assert scenario.held() == {"next/main": ("d0",)}
        assert scenario.runtime.next_deadline() is None
        assert scenario.end(container("p"), "p") == [], "reported when the kubelet removes it"

    @pytest.mark.parametrize("is_seen_again", [False, True])
    def test_a_container_that_starts_after_all_is_reported(self, is_seen_again: bool) -> None:
        scenario = self.found()
        made = scenario.create("p")
        scenario.sync(("p", replace(made, state=ContainerState.CREATED)))
        scenario.gone("p")
        scenario.answer_all(scenario.end(made, "p"))
        assert scenario.held() == {"next/main": ("d0",)}
        if is_seen_again:
            scenario.sync(("p", replace(made, state=ContainerState.CREATED)))
        assert scenario.runtime.using_released(GPU) == ()
        assert published(scenario.start(made, "p")) == {GPU}
        assert [instance.id for instance in scenario.runtime.using_released(GPU)] == [made.id]
        assert published(scenario.end(made, "p")) == {GPU}
        assert scenario.runtime.using_released(GPU) == ()

    def test_a_running_container_of_a_pod_that_the_api_has_forgotten(self) -> None:
        """The checkpoint is lost, and allocations are recovered from the API: until then none are known."""
        made = self.found().create("p")
        after = RuntimeScenario.with_plugin(1, is_recovering=True)
        after.sync(("p", made))
        assert after.runtime.using_released(GPU) == ()
        after.happens("recovered", Checkpoint(()))
        assert [instance.id for instance in after.runtime.using_released(GPU)] == [made.id]

    @pytest.mark.parametrize(
        ("state", "pid"),
        [(s, 0) for s in ContainerState if s not in (ContainerState.CREATED, ContainerState.STOPPED)]
        + [(ContainerState.CREATED, 7)],
    )
    def test_not_a_container_that_may_have_a_process(self, state: ContainerState, pid: int) -> None:
        scenario = self.found(state=state, pid=pid)
        scenario.gone("p")
        assert scenario.runtime.next_deadline() is None
        assert ended(scenario, 3600.0) == []


class TestDevicesNotInjected:
    def without(self, scenario: RuntimeScenario, uid: str = "p", name: str = "main") -> bool:
        return scenario.runtime.not_injected(uid, name, GPU)

    def found(self, *, allocated: bool = True, **shown: Any) -> RuntimeScenario:
        """A container that runs when the agent comes."""
        scenario = RuntimeScenario.with_plugin(device_ids(2 if allocated else 0))
        scenario.sync(("p", container("p", **shown)))
        scenario.run(pod("p", gpu=1))
        return scenario

    def test_an_unmarked_container_with_the_edits_has_them(self) -> None:
        assert not self.without(self.found(**shows("ok")))
        assert self.without(self.found(**shows("something else")))

    @pytest.mark.parametrize("value", ["ok", "the pod's"])
    @pytest.mark.parametrize("answer", [b"ok", b"env ok"])
    @pytest.mark.parametrize("has_device", [True, False])
    def test_settings_of_the_pod_prove_nothing(self, value: str, answer: bytes, has_device: bool) -> None:
        """Neither that it has its devices nor that it lacks them; where nothing else was answered, it lacks nothing."""
        scenario = RuntimeScenario.with_plugin(1)
        shown = shown_settings((f"ANSWER={value}",), ("/dev/ok",) if has_device else ())
        scenario.sync(("p", container("p", shown=shown)))
        own = ContainerSettings(envs=frozenset({"ANSWER"}))
        (call,) = calls(scenario.see(pod("p", Container("main", limits={GPU: 1}, settings=own))))
        scenario.answer(call, answer)
        assert self.without(scenario) == (answer == b"ok" and not has_device)

    def test_a_response_that_the_runtime_does_not_show(self) -> None:
        """That is no proof that it has them."""
        scenario = RuntimeScenario.with_plugin(1)
        scenario.sync(("p", container("p")))
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        scenario.answer(call, b"mount /data")
        assert self.without(scenario)

    @pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "pending"])
    def test_its_end_is_published(self, allocated: bool) -> None:
        scenario = self.found(allocated=allocated)
        assert [found.not_injected for found in scenario.snapshot_with_runtime().pending] == [True] * (not allocated)
        assert published(scenario.end(container("p"), "p")) == {GPU}
        assert not self.without(scenario)


def unlisted() -> tuple[RuntimeScenario, RunningContainer]:
    scenario, made = running()
    scenario.manager.containers.lost()
    scenario.sync()
    return scenario, made


@pytest.mark.parametrize("is_gone_first", [False, True])
def test_its_device_stays_held_until_the_runtime_reports_its_end(is_gone_first: bool) -> None:
    scenario, made = running()
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
def test_an_instance_that_was_created_while_the_agent_was_away(state: ContainerState, is_replaced: bool) -> None:
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
    after.runtime.synchronized([], [replace(made, pod_uid="p" if is_restarted else "")], after.now)
    after.settled()
    after.happens("pod_events.synced", [])
    assert after.held() == {"p/main": ("d0",)}
    assert after.runtime.next_deadline() is None, "it is listed"
    after.end(made, "")
    assert after.held() == {}


async def test_the_device_of_a_refused_container_is_prepared_before_the_next_start(tmp_path: Path) -> None:
    scenario = prepared(pod("p", gpu=1))
    backend = BackendNode(tmp_path, scenario).backend
    assert await backend.create_container(sandbox("p"), container("p")) is not None
    assert list(scenario.manager.containers)
    # the second time the runtime reports its end as well
    for happens in (backend.creation_refused, backend.container_ended):
        happens(sandbox("p"), container("p"))
        calls = [effect for effect in scenario.effects if isinstance(effect, CallPreStart)]
        assert len(calls) == 2
    scenario.happens("pre_started", calls[-1].ticket)
    assert await backend.create_container(sandbox("p"), container("p", number=2)) is not None


def test_a_creation_that_the_runtime_failed_in_silence_is_replaced_by_the_next() -> None:
    """As CRI-O does where a CDI device is unknown."""
    scenario = prepared(pod("p", gpu=1))
    for number in range(1, 5):
        made = scenario.create("p", number=number)
    scenario.start(made, "p")
    assert [instance.id for instance in scenario.manager.containers] == [made.id]
    assert len([effect for effect in scenario.end(made, "p") if isinstance(effect, CallPreStart)]) == 1
    assert scenario.refusal("p").is_temporary


def test_one_that_has_run_is_not_replaced_by_a_creation() -> None:
    """Only the runtime knows its end."""
    scenario = connected().run(pod("p", gpu=1))
    first = scenario.create("p")
    scenario.start(first, "p")
    second = scenario.create("p", number=2)
    assert {instance.id for instance in scenario.manager.containers} == {first.id, second.id}
