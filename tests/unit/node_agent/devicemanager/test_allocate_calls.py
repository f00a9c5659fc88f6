"""Allocate calls for pods: events meanwhile, and calls that fail and are made again after a backoff."""

import pytest
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, held_by, pod, published, with_call


class TestDuringACall:
    @pytest.mark.kubelet("weak spot 25")
    @pytest.mark.parametrize(
        "devices",
        [
            pytest.param(["d1"], id="the device is no longer listed"),
            pytest.param([Device("d0", healthy=False), "d1"], id="the device is no longer healthy"),
        ],
    )
    def test_another_device_is_chosen(self, devices: list[str | Device]) -> None:
        scenario, call = with_call()
        scenario.lists(devices)
        scenario.answer_all(scenario.answer(call))
        assert scenario.held() == {"p/main": ("d1",)}

    def test_an_allocated_device_is_checked_again_until_the_pod_has_all(self) -> None:
        scenario = Scenario.with_plugin(2, nics=["n0"])
        (first,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
        (second,) = calls(scenario.answer(first))
        scenario.lists(["d1"])
        (again,) = calls(scenario.answer(second))
        assert (again.resource_name, again.device_ids) == (GPU, ("d1",))

    @pytest.mark.kubelet("behaviour 48")
    def test_the_plugin_disconnects(self) -> None:
        scenario, call = with_call()
        scenario.disconnect()
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({}, {"p": "EndpointStopped"})

    def test_the_pod_ends_and_its_device_is_allocated_to_the_next(self) -> None:
        scenario, call = with_call(1)
        scenario.see(pod("q", gpu=1))
        (for_q,) = calls(scenario.gone("p"))
        assert for_q.device_ids == ("d0",)
        # the late response for the first pod is ignored
        assert scenario.answer(call) == []
        scenario.answer(for_q)
        assert scenario.held() == {"q/main": ("d0",)}

    def test_an_unexpected_response_is_ignored(self) -> None:
        scenario, call = with_call()
        scenario.answer(call)
        assert scenario.answer(call) == []
        assert scenario.fail(call) == []
        assert scenario.happens("preferred", 4711, ()) == []

    def test_a_pod_that_is_terminating_keeps_its_call(self) -> None:
        scenario, call = with_call()
        assert calls(scenario.see(pod("p", gpu=1, is_terminating=True))) == []
        scenario.answer(call)
        assert scenario.held() == {"p/main": ("d0",)}

    def test_nothing_else_is_chosen_for_a_terminating_pod(self) -> None:
        scenario, call = with_call()
        scenario.see(pod("p", gpu=1, is_terminating=True))
        scenario.lists(["d1"])
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({}, {})


class TestAllocateFails:
    @pytest.mark.kubelet("behaviour 53")
    def test_backoff_grows_to_a_minute(self) -> None:
        scenario, call = with_call()
        pauses = []
        for _ in range(9):
            began = scenario.now
            scenario.fail(call, "out of order")
            deadline = scenario.manager.next_deadline()
            assert deadline is not None
            (call,) = calls(scenario.passes(deadline - scenario.now))
            pauses.append(scenario.now - began)
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    def test_the_pending_message_has_the_plugins_error(self) -> None:
        scenario, call = with_call()
        assert published(scenario.fail(call, "out of order")) == {GPU}
        (pending,) = scenario.manager.pending(GPU)
        assert (pending.reason, pending.message, pending.attempts) == ("AllocateFailed", "out of order", 1)

    def test_success_resets_the_backoff(self) -> None:
        scenario, call = with_call()
        scenario.fail(call)
        (again,) = calls(scenario.passes(1))
        assert published(scenario.answer(again)) == {GPU}
        assert (scenario.held(), scenario.reasons()) == ({"p/main": ("d0",)}, {})
        assert scenario.manager.next_deadline() is None

    def test_a_change_of_the_resource_does_not_shorten_the_backoff(self) -> None:
        scenario, call = with_call()
        scenario.fail(call)
        assert calls(scenario.lists(3)) == []
        assert len(calls(scenario.passes(1))) == 1

    def test_a_terminating_pod_is_not_retried_and_has_no_deadline(self) -> None:
        scenario, call = with_call()
        scenario.fail(call)
        assert published(scenario.see(pod("p", gpu=1, is_terminating=True))) == {GPU}
        assert scenario.manager.next_deadline() is None
        assert calls(scenario.passes(60)) == []
        assert scenario.reasons() == {}


class TestBackoff:
    """A pod whose plugin failed is retried when its backoff is over, whatever happens to other pods."""

    def test_the_containers_of_another_end(self) -> None:
        scenario = RuntimeScenario.with_plugin(2).run(pod("p", gpu=1))
        made = scenario.create("p")
        scenario.sync(("p", made))
        (call,) = calls(scenario.see(pod("q", gpu=1)))
        scenario.fail(call)
        scenario.gone("p")
        assert calls(scenario.end(made, "p")) == []
        assert scenario.held() == {}
        assert len(calls(scenario.passes(1))) == 1

    def test_pods_are_listed_while_a_lost_response_is_asked_for_again(self) -> None:
        scenario = Scenario(Checkpoint((held_by("p", "d0", response=None),), {GPU: ()}))
        scenario.happens("pod_events.synced", [pod("p", gpu=1)])
        (call,) = calls(scenario.plugin(1))
        scenario.fail(call)
        assert calls(scenario.happens("pod_events.synced", [pod("p", gpu=1)])) == []
        assert len(calls(scenario.passes(1))) == 1

    def test_another_that_failed_earlier_is_retried(self) -> None:
        scenario, call = with_call()
        scenario.fail(call)
        scenario.passes(0.5)
        (other,) = calls(scenario.see(pod("r", gpu=1)))
        scenario.fail(other)
        assert len(calls(scenario.passes(0.5))) == 1
        assert len(calls(scenario.passes(0.5))) == 1


def test_a_response_is_awaited_until_it_comes_or_its_pod_ends() -> None:
    scenario, call = with_call()
    (other,) = calls(scenario.see(pod("q", gpu=1)))
    is_awaited = scenario.manager.allocator.is_awaited
    assert is_awaited(call.ticket)
    scenario.gone("p")
    assert (is_awaited(call.ticket), is_awaited(other.ticket)) == (False, True)
    scenario.answer(other)
    assert not is_awaited(other.ticket)


def test_a_pod_that_changes_during_its_call_is_served_as_it_was() -> None:
    scenario, call = with_call()
    assert scenario.see(pod("p", gpu=2)) == []
    scenario.answer(call)
    assert scenario.held() == {"p/main": ("d0",)}
