"""PreStartContainer: once for each container and resource, after the pod's allocation, and never again once it succeeded."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.effects import CallPreStart, Effect, SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import Sandbox

from tests.unit.node_agent.devicemanager.pods import GPU, HASH, NIC, app, init, pod
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import Scenario, calls, held_by, published

ASKING = PluginOptions(pre_start_required=True)


def pre_starts(effects: Iterable[Effect]) -> list[CallPreStart]:
    return [effect for effect in effects if isinstance(effect, CallPreStart)]


def asking(devices: int = 4) -> Scenario:
    """GPUs of a plugin that requires the call, network cards of one that does not."""
    return Scenario.with_plugin(devices, options=ASKING, nics=["n0", "n1"])


def allocated(scenario: Scenario, *wanted: Pod) -> list[CallPreStart]:
    """These pods arrive and get their devices. Returns the resulting calls."""
    before = len(scenario.effects)
    scenario.run(*wanted)
    return pre_starts(scenario.effects[before:])


def called() -> tuple[Scenario, CallPreStart]:
    (call,) = allocated(scenario := asking(), pod("p", gpu=1))
    return scenario, call


def started(scenario: Scenario, call: CallPreStart) -> list[Effect]:
    return scenario.happens("pre_started", call.ticket)


def fails(scenario: Scenario, call: CallPreStart, message: str = "cannot reset") -> list[Effect]:
    return scenario.happens("pre_start_failed", call.ticket, message)


class TestWhen:
    @pytest.mark.kubelet("behaviour 58", "scenario 31")
    def test_with_the_containers_devices_once_all_is_allocated(self) -> None:
        scenario = asking()
        (gpus,) = calls(scenario.see(pod("p", gpu=2, nic=1)))
        (nics,) = calls(effects := scenario.answer(gpus))
        assert pre_starts(effects) == []
        (call,) = pre_starts(effects := scenario.answer(nics))
        assert (call.resource_name, call.endpoint, call.container, call.device_ids) == (GPU, 1, "main", ("d0", "d1"))
        assert SaveCheckpoint(durable=True, pod_uid="p") in effects

    @pytest.mark.kubelet("behaviour 58", "scenario 32")
    def test_not_for_a_container_without_devices(self) -> None:
        scenario = asking()
        (call,) = allocated(scenario, pod("p", app("a", 0), app("b")))
        assert call.container == "b"
        assert pre_starts(started(scenario, call)) == []

    def test_one_at_a_time_in_the_order_in_which_containers_start(self) -> None:
        scenario = asking()
        seen = allocated(scenario, pod("p", init("i", 2), app("a"), app("b", 2)))
        order = []
        while seen:
            (call,) = seen
            order.append((call.container, call.device_ids))
            seen = pre_starts(started(scenario, call))
        assert order == [("i", ("d0", "d1")), ("a", ("d0",)), ("b", ("d1", "d2"))]

    @pytest.mark.kubelet("behaviour 57")
    def test_once(self) -> None:
        scenario, call = called()
        started(scenario, call)
        assert pre_starts(scenario.lists(["d0"])) == []
        assert pre_starts(scenario.passes(1000)) == []
        assert started(scenario, call) == []


class TestFailure:
    def test_is_reported_and_the_devices_stay_held(self) -> None:
        scenario, call = called()
        assert published(fails(scenario, call)) == {GPU}
        (pending,) = (view.pending for view in scenario.snapshot().pending)
        assert (pending.reason, pending.message, pending.container) == ("PreStartFailed", "cannot reset", "main")
        assert scenario.held() == {"p/main": ("d0",)}

    def test_is_retried_with_backoff(self) -> None:
        scenario, call = called()
        for pause in (1, 2, 4, 8, 16, 32, 60, 60):
            fails(scenario, call)
            assert pre_starts(scenario.passes(pause - 0.1)) == []
            (call,) = pre_starts(scenario.passes(0.1))
            assert scenario.reasons() == {"p": "PreStartFailed"}
        assert (published(started(scenario, call)), scenario.reasons()) == ({GPU}, {})

    def test_delays_later_containers_but_no_other_pod(self) -> None:
        scenario = asking()
        (call,) = allocated(scenario, pod("p", init("i"), app("a")))
        assert pre_starts(fails(scenario, call)) == []
        assert len(allocated(scenario, pod("q", gpu=1))) == 1

    @pytest.mark.kubelet("behaviour 59")
    def test_of_a_disconnected_plugin_is_retried_when_it_lists_its_devices_again(self) -> None:
        scenario, call = called()
        scenario.disconnect()
        fails(scenario, call)
        assert pre_starts(scenario.passes(1000)) == []
        assert pre_starts(scenario.connect(endpoint=3, options=ASKING)) == []
        (again,) = pre_starts(scenario.lists(["d0"], endpoint=3))
        assert (again.endpoint, again.device_ids) == (3, ("d0",))

    def test_ends_when_the_plugin_no_longer_requires_the_call_and_the_pods_next_call_follows(self) -> None:
        scenario = asking(1)
        scenario.plugin(["n0"], NIC, 3, ASKING)
        (call,) = allocated(scenario, pod("p", gpu=1, nic=1))
        fails(scenario, call)
        scenario.disconnect()
        scenario.plugin(["d0"], endpoint=4)
        (call,) = pre_starts(scenario.passes(1))
        assert call.resource_name == NIC
        assert (scenario.reasons(), scenario.manager.checkpoint().pre_starts) == ({}, (("p", "main", NIC),))

    @pytest.mark.parametrize("has_failed", [True, False])
    def test_ends_with_the_pod(self, has_failed: bool) -> None:
        scenario, call = called()
        if has_failed:
            fails(scenario, call)
        scenario.gone("p")
        assert scenario.reasons() == {}
        assert started(scenario, call) == []
        assert fails(scenario, call) == []
        assert pre_starts(scenario.passes(1000)) == []
        assert scenario.manager.next_deadline() is None

    def test_of_one_pod_is_not_hurried_by_the_success_of_another(self) -> None:
        scenario = asking()
        first, second = allocated(scenario, pod("p", gpu=1), pod("q", gpu=1))
        fails(scenario, second)
        assert pre_starts(started(scenario, first)) == []
        assert len(pre_starts(scenario.passes(1))) == 1


class TestEndedPod:
    """The plugin may be resetting the devices until it responds, however late: nobody else gets them before."""

    def ended(self) -> tuple[RuntimeScenario, CallPreStart]:
        """Another pod waits for the only device of one that has ended while its call is in flight."""
        scenario = RuntimeScenario.with_plugin(1, options=ASKING)
        (call,) = allocated(scenario, pod("p", gpu=1))
        scenario.sync()
        scenario.see(pod("q", gpu=1))
        scenario.gone("p")
        return scenario, call

    @pytest.mark.parametrize("response", [started, fails])
    def test_its_devices_are_held_until_the_plugin_responds(self, response: Any) -> None:
        scenario, call = self.ended()
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.answer_all(response(scenario, call))
        assert scenario.held() == {"q/main": ("d0",)}

    def test_they_are_held_while_another_of_its_containers_runs(self) -> None:
        scenario = RuntimeScenario.with_plugin(2, options=ASKING)
        (first,) = allocated(scenario, pod("p", app("a"), app("b")))
        scenario.sync()
        (second,) = pre_starts(started(scenario, first))
        made = scenario.create("p", "a")
        scenario.gone("p")
        started(scenario, second)
        assert scenario.held() == {"p/a": ("d0",), "p/b": ("d1",)}
        scenario.end(made, "p")
        assert scenario.held() == {}

    def test_the_end_of_its_containers_does_not_free_them(self) -> None:
        scenario, _ = self.ended()
        scenario.happens("releasing.containers_ended", "p")
        assert scenario.held() == {"p/main": ("d0",)}


class TestRestart:
    def restarted(self, scenario: Scenario) -> Scenario:
        return Scenario(decode(encode(scenario.manager.checkpoint()))).run(pod("p", gpu=1))

    def test_does_not_repeat_completed_calls(self) -> None:
        scenario, call = called()
        assert SaveCheckpoint(durable=False) in started(scenario, call)
        assert pre_starts(self.restarted(scenario).plugin(["d0"], options=ASKING)) == []

    @pytest.mark.parametrize("has_failed", [True, False])
    def test_repeats_calls_in_flight_and_failed_ones(self, has_failed: bool) -> None:
        scenario, call = called()
        if has_failed:
            fails(scenario, call)
        again = self.restarted(scenario)
        assert pre_starts(again.effects) == []
        (repeated,) = pre_starts(again.plugin(["d0"], options=ASKING))
        assert repeated.device_ids == ("d0",)

    def test_no_call_for_a_pod_that_is_gone_meanwhile(self) -> None:
        again = asking().run(pod("p", gpu=1)).restarted()
        again.happens("pod_events.synced", [])
        assert pre_starts(again.plugin(["d0"], options=ASKING)) == []

    @pytest.mark.parametrize(
        "odd", ["3", "{}", "[3, null]", '[{"PodUID": "p"}]', '[{"PodUID": 1, "ContainerName": 2, "ResourceName": 3}]']
    )
    def test_an_invalid_list_in_the_file_is_ignored(self, odd: str) -> None:
        scenario, call = called()
        started(scenario, call)
        text = encode(scenario.manager.checkpoint())
        assert "PreStarts" not in text
        assert decode(text[:-1] + f',"PreStarts":{odd}}}') == decode(text)


def test_the_call_of_a_pod_under_another_uid_is_made_under_that() -> None:
    """The checkpoint was lost, and the API knows that a static pod had a device, by the UID of its mirror pod. A container of it
    has ended, so its call may be due; its plugin has not listed its devices yet.
    """
    scenario = RuntimeScenario(is_recovering=True)
    scenario.connect(options=ASKING)
    scenario.happens("recovered", Checkpoint((held_by("mirror", "d0"),), {GPU: ()}))
    scenario.manager.pre_starts.require_if_supported([("mirror", "main", GPU)])
    scenario.happens("pod_events.synced", [replace(pod("mirror", gpu=1), name="static", config_hash=HASH)])
    scenario.runtime.sandbox_shown(Sandbox(f"sandbox-{HASH}-1", "static", "default", HASH), scenario.now)
    scenario.settled()
    (call,) = pre_starts(scenario.lists(["d0"]))
    assert (call.container, call.device_ids) == ("main", ("d0",))
    assert set(scenario.manager.pre_starts.in_flight.values()) == {(HASH, "main", GPU)}
