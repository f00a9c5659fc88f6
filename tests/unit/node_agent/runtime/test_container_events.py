"""When devices are free again, and which containers run without theirs."""

from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.effects import CallPreStart
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, shown_settings
from nodedevice_agent.runtime.container_events import CREATED_SECONDS

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox, shows
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, device_ids, pod, published
from tests.unit.node_agent.devicemanager.scenario import container as asking


def connected(count: int = 1) -> RuntimeScenario:
    scenario = RuntimeScenario.with_plugin(count)
    scenario.sync()
    return scenario


def over(uid: str) -> Pod:
    return pod(uid, gpu=1, has_ended=True)


class TestEnd:
    def running(self) -> tuple[RuntimeScenario, RunningContainer]:
        scenario = connected().run(pod("p", gpu=1), pod("next", gpu=1))
        return scenario, scenario.create("p")

    def test_a_pod_that_never_started_is_free_at_once(self) -> None:
        scenario = connected().run(pod("p", gpu=1))
        scenario.gone("p")
        assert scenario.held() == {}

    @pytest.mark.parametrize("how", ["over", "gone"])
    def test_between_the_ends_of_pod_and_container_it_is_releasing(self, how: str) -> None:
        scenario, made = self.running()
        (scenario.see(over("p")) if how == "over" else scenario.gone("p"))
        seen = scenario.snapshot()
        assert (seen.allocated, seen.releasing, seen.available) == (0, 1, 0)
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.answer_all(scenario.end(made, "p"))
        assert scenario.held() == {"next/main": ("d0",)}

    def test_the_end_of_the_container_first(self) -> None:
        scenario, made = self.running()
        scenario.end(made, "p")
        assert scenario.held() == {"p/main": ("d0",)}, "it may start again"
        scenario.answer_all(scenario.gone("p"))
        assert scenario.held() == {"next/main": ("d0",)}

    def test_its_sandbox_removed(self) -> None:
        scenario, _ = self.running()
        scenario.gone("p")
        scenario.runtime.sandbox_removed(sandbox("p"))
        scenario.answer_all(scenario.settled())
        assert scenario.held() == {"next/main": ("d0",)}

    def test_an_older_sandbox_removed(self) -> None:
        scenario, _ = self.running()
        scenario.gone("p")
        scenario.runtime.sandbox_removed(sandbox("p", number=0))
        assert scenario.settled() == []
        assert scenario.held() == {"p/main": ("d0",)}

    def test_every_instance_counts(self) -> None:
        scenario, first = self.running()
        second = scenario.create("p", number=2)
        scenario.gone("p")
        scenario.end(first, "p")
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.answer_all(scenario.end(second, "p"))
        assert scenario.held() == {"next/main": ("d0",)}

    def test_containers_without_devices_do_not_count(self) -> None:
        scenario = connected().run(pod("p", asking("main", gpu=1), asking("log")))
        scenario.start(container("p", "log"), "p")
        made = scenario.create("p")
        scenario.gone("p")
        scenario.end(made, "p")
        assert scenario.held() == {}

    def test_nothing_is_free_while_the_runtime_is_disconnected(self) -> None:
        scenario = connected().run(pod("p", gpu=1))
        scenario.manager.containers.lost()
        scenario.gone("p")
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.sync()
        assert scenario.held() == {}

    @pytest.mark.parametrize("state", list(ContainerState))
    def test_containers_after_a_restart(self, state: ContainerState) -> None:
        scenario, made = self.running()
        after = scenario.rebooted()
        after.happens("pod_events.synced", [])
        assert after.held() == {"p/main": ("d0",)}
        after.sync(("p", container("p", state=state, annotations=made.annotations)))
        assert (after.held() == {}) == (state is ContainerState.STOPPED)

    def test_pods_that_ended_while_the_agent_was_down(self) -> None:
        scenario, made = self.running()
        after = scenario.rebooted()
        after.sync(("p", made))
        after.happens("pod_events.synced", [])
        assert after.snapshot().releasing == 1
        after.end(made, "p")
        assert after.held() == {}

    @pytest.mark.parametrize("message", ["", "cannot reset"], ids=["answered", "failed"])
    def test_a_call_in_flight_delays_the_release(self, message: str) -> None:
        scenario = RuntimeScenario.with_plugin(["d0"], options=PluginOptions(pre_start_required=True))
        scenario.sync()
        scenario.run(pod("p", gpu=1), pod("next", gpu=1))
        scenario.prepare(scenario.effects)
        (call,) = [e for e in scenario.end(scenario.create("p"), "p") if isinstance(e, CallPreStart)]
        scenario.gone("p")
        assert scenario.snapshot().releasing == 1
        event = ("pre_start_failed", call.ticket, message) if message else ("pre_started", call.ticket)
        scenario.answer_all(scenario.happens(*event))
        assert scenario.held() == {"next/main": ("d0",)}


class TestNeverStarted:
    """The runtime was killed while it started a container: it reports Created ever after."""

    def found(self, *, state: ContainerState = ContainerState.CREATED, pid: int = 0) -> RuntimeScenario:
        scenario = connected().run(pod("p", gpu=1), pod("next", gpu=1))
        made = scenario.create("p")
        scenario.manager.containers.lost()
        scenario.sync(("p", replace(made, state=state, pid=pid)))
        return scenario

    def never_started(self, scenario: RuntimeScenario, after: float) -> list[str]:
        return [instance.id for instance in scenario.runtime.overdue(scenario.now + after)]

    @pytest.mark.parametrize("found_before", [0.0, 3600.0])
    @pytest.mark.parametrize("how", ["over", "gone"])
    def test_counts_as_ended_after_a_timeout(self, how: str, found_before: float) -> None:
        scenario = self.found()
        scenario.now += found_before
        (scenario.see(over("p")) if how == "over" else scenario.gone("p"))
        assert scenario.held() == {"p/main": ("d0",)}
        assert scenario.runtime.next_deadline() == scenario.now + CREATED_SECONDS
        assert self.never_started(scenario, CREATED_SECONDS - 0.1) == []
        assert self.never_started(scenario, CREATED_SECONDS) == ["p-main-1"]
        scenario.answer_all(scenario.end(container("p"), "p"))
        assert scenario.held() == {"next/main": ("d0",)}
        assert scenario.runtime.next_deadline() is None
        assert scenario.end(container("p"), "p") == [], "reported when the kubelet removes it"

    def test_found_after_the_pods_end(self) -> None:
        """The agent restarts, and the runtime synchronizes last."""
        before = self.found()
        after = before.rebooted()
        after.happens("pod_events.synced", [])
        after.now += 60.0
        after.sync(("p", replace(container("p"), state=ContainerState.CREATED)))
        assert after.runtime.next_deadline() == after.now + CREATED_SECONDS

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

    @pytest.mark.parametrize("state", [ContainerState.CREATED, ContainerState.RUNNING])
    def test_the_next_instance_replaces_it(self, state: ContainerState) -> None:
        """Devices are prepared again when that has ended, whatever happens to the one that never ran."""
        scenario = RuntimeScenario.with_plugin(1, options=PluginOptions(pre_start_required=True))
        scenario.sync()
        scenario.run(pod("p", gpu=1))
        scenario.prepare(scenario.effects)
        first = scenario.create("p")
        scenario.sync(("p", replace(first, state=state)))
        second = scenario.create("p", number=2)
        scenario.start(second, "p")
        made = [effect for effect in scenario.end(second, "p") if isinstance(effect, CallPreStart)]
        assert len(made) == (1 if state is ContainerState.CREATED else 0)

    def test_not_in_a_pod_that_is_not_over(self) -> None:
        scenario = self.found()
        assert scenario.runtime.next_deadline() is None
        assert self.never_started(scenario, 3600.0) == []

    @pytest.mark.parametrize(
        ("state", "pid"),
        [(s, 0) for s in ContainerState if s not in (ContainerState.CREATED, ContainerState.STOPPED)]
        + [(ContainerState.CREATED, 7)],
    )
    def test_not_a_container_that_may_have_a_process(self, state: ContainerState, pid: int) -> None:
        scenario = self.found(state=state, pid=pid)
        scenario.gone("p")
        assert scenario.runtime.next_deadline() is None
        assert self.never_started(scenario, 3600.0) == []

    def test_not_a_container_that_started_meanwhile(self) -> None:
        scenario = self.found()
        scenario.gone("p")
        scenario.start(container("p"), "p")
        assert scenario.runtime.next_deadline() is None
        assert self.never_started(scenario, 3600.0) == []
        assert scenario.held() == {"p/main": ("d0",)}

    def test_not_while_the_runtime_is_disconnected(self) -> None:
        scenario = self.found()
        scenario.gone("p")
        scenario.manager.containers.lost()
        assert scenario.runtime.next_deadline() is None
        assert self.never_started(scenario, 3600.0) == []


class TestDevicesNotInjected:
    def without(self, scenario: RuntimeScenario, uid: str = "p", name: str = "main") -> bool:
        return scenario.runtime.not_injected(uid, name, GPU)

    def found(self, *, allocated: bool = True, **shown: Any) -> RuntimeScenario:
        """A container that runs when the agent comes."""
        scenario = RuntimeScenario.with_plugin(device_ids(2 if allocated else 0))
        scenario.sync(("p", container("p", **shown)))
        scenario.run(pod("p", gpu=1))
        return scenario

    def test_a_marked_container_has_its_devices(self) -> None:
        scenario = connected().run(pod("p", gpu=1))
        made = scenario.create("p")
        assert not self.without(scenario)
        scenario.sync(("p", container("p")))
        assert not self.without(scenario), "a runtime need not show the mark"
        after = scenario.rebooted()
        after.sync(("p", made))
        assert not self.without(after)

    def test_an_unmarked_container_has_none(self) -> None:
        scenario = self.found()
        assert self.without(scenario)
        (held,) = scenario.snapshot_with_runtime().held
        assert held.not_injected

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

    def test_a_pending_pod_whose_container_runs(self) -> None:
        scenario = self.found(allocated=False)
        (pending,) = scenario.snapshot_with_runtime().pending
        assert pending.not_injected

    def test_other_devices_than_allocated(self) -> None:
        scenario = connected(2).run(pod("p", gpu=1), pod("q", gpu=1))
        of_p, of_q = scenario.create("p"), scenario.create("q")
        after = scenario.rebooted()
        after.sync(("p", container("p", annotations=of_q.annotations)), ("q", of_q))
        assert of_p.annotations != of_q.annotations
        assert self.without(after)
        assert not self.without(after, "q")

    def test_a_name_that_became_managed_later(self) -> None:
        scenario = RuntimeScenario()
        scenario.sync()
        scenario.run(pod("p", gpu=1))
        assert scenario.ask("p") is None
        scenario.start(container("p"), "p")
        scenario.answer_all(scenario.plugin(1))
        assert self.without(scenario)

    def test_one_resource_of_two(self) -> None:
        scenario = connected().run(pod("p", gpu=1, nic=1))
        scenario.create("p")
        scenario.answer_all(scenario.plugin(["n0"], NIC, endpoint=2))
        assert not self.without(scenario)
        assert scenario.runtime.not_injected("p", "main", NIC)

    @pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "pending"])
    def test_its_end_is_published(self, allocated: bool) -> None:
        scenario = self.found(allocated=allocated)
        assert published(scenario.end(container("p"), "p")) == {GPU}
        assert not self.without(scenario)
