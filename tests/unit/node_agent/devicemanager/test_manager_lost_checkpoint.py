"""The checkpoint was lost: allocations are recovered from the API, and Allocate is called for them again."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.effects import CallAllocate, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import is_settling
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_api.parts import PartRules

from tests.unit.node_agent.devicemanager.pods import GPU, HASH, NIC, pod
from tests.unit.node_agent.devicemanager.scenario import Scenario, calls, held_by, parts, published

SETTLE_SECONDS = 10
# Unix seconds
NOON = 1_767_614_400


def lost(*resources: str, **options: Any) -> Scenario:
    """The checkpoint was lost; plugins of these resources have registered again; nothing is recovered from the API yet."""
    scenario = Scenario(is_recovering=True, **options)
    for endpoint, name in enumerate(resources, 1):
        scenario.plugin(2, name, endpoint)
    return scenario


def knows(*allocations: Allocation, resources: Iterable[str] = ()) -> Checkpoint:
    """What is recovered from the API."""
    return Checkpoint(allocations, dict.fromkeys(resources, ()))


def called_again(since: int = 0, **options: Any) -> tuple[Scenario, CallAllocate]:
    """A device of a pod is recovered, without a response; the call for it."""
    scenario = lost(GPU, **options)
    (call,) = calls(scenario.happens("recovered", knows(replace(held_by("p", "d0", response=None), since=since))))
    return scenario, call


class TestLostCheckpoint:
    @pytest.mark.kubelet("weak spot 6")
    def test_pods_keep_their_devices_and_pending_pods_get_others(self) -> None:
        scenario = lost(GPU)
        assert calls(scenario.see(pod("p", gpu=1), pod("q", gpu=1))) == []
        # nothing is published
        assert is_settling(scenario.manager, GPU)
        effects = scenario.happens("recovered", knows(held_by("p", "d1", response=None)))
        assert effects[0] == SaveCheckpoint(durable=True)
        assert published(effects) == {GPU}
        assert {call.pod_uid: call.device_ids for call in calls(effects)} == {"p": ("d1",), "q": ("d0",)}
        scenario.answer_all(effects)
        assert scenario.held() == {"p/main": ("d1",), "q/main": ("d0",)}
        assert not is_settling(scenario.manager, GPU)

    @pytest.mark.kubelet("behaviour 60")
    @pytest.mark.parametrize("since", [NOON, 0])
    def test_allocate_is_called_again_and_its_response_saved(self, since: int) -> None:
        """The other response does not change since when they are held."""
        scenario, call = called_again(since=since)
        scenario.wall_clock = NOON + 60
        assert scenario.answer(call, b"again") == [SaveCheckpoint(durable=True, pod_uid="p"), Publish(GPU)]
        (kept,) = scenario.manager.book
        assert (kept.response, kept.since) == (b"again", since)
        assert scenario.passes(600) == []

    def test_it_is_called_once_the_plugin_lists_the_device(self) -> None:
        scenario = Scenario(is_recovering=True)
        assert calls(scenario.happens("recovered", knows(held_by("p", "d0", "d1", response=None)))) == []
        assert is_settling(scenario.manager, GPU)
        scenario.connect()
        assert calls(scenario.lists(["d0"])) == []
        (call,) = calls(scenario.lists(["d0", "d1"]))
        assert (call.device_ids, call.pod_uid, call.container) == (("d0", "d1"), "p", "main")
        (again,) = calls(scenario.restarted().plugin(2))
        assert again.device_ids == ("d0", "d1")
        assert calls(scenario.lists(["d0", "d1", "d2"])) == []

    def test_a_failed_call_is_retried_with_backoff(self) -> None:
        scenario, call = called_again()
        assert scenario.fail(call) == []
        assert calls(scenario.passes(0.5)) == []
        (call,) = calls(scenario.passes(0.5))
        scenario.fail(call)
        assert calls(scenario.passes(1.5)) == []
        (call,) = calls(scenario.passes(0.5))
        scenario.answer(call)
        assert scenario.manager.next_deadline() is None

    def test_a_plugin_of_parts_is_called_again_when_the_pod_is_known(self) -> None:
        scenario = Scenario.with_plugin(parts(PartRules(), g=1), is_recovering=True)
        assert calls(scenario.happens("recovered", knows(held_by("p", "g-0", response=None)))) == []
        (call,) = calls(scenario.happens("pod_events.synced", [pod("p", gpu=1)]))
        assert (call.device_ids, call.pod_uid, call.container) == (("g-0",), "p", "main")

    @pytest.mark.parametrize("fails_first", [False, True], ids=["in flight", "failed"])
    def test_a_call_for_a_static_pod_is_made_again_under_the_uid_of_the_runtime(self, fails_first: bool) -> None:
        scenario, call = called_again(waits_for_runtime=True)
        if fails_first:
            scenario.fail(call)
        scenario.happens("pod_events.synced", [pod("p", gpu=1, config_hash=HASH)])
        (again,) = calls(scenario.happens("pod_events.static_pod_shown", StaticPod(HASH, "default", "p")))
        # the response to the first call changes nothing any more
        scenario.fail(call)
        assert calls(scenario.passes(30)) == []
        assert scenario.answer(again, b"again") == [SaveCheckpoint(durable=True, pod_uid=HASH), Publish(GPU)]
        (kept,) = scenario.manager.book
        assert (kept.pod_uid, kept.response) == (HASH, b"again")

    @pytest.mark.kubelet("behaviour 61")
    @pytest.mark.parametrize("fails_first", [False, True], ids=["in flight", "failed"])
    def test_no_call_for_a_pod_that_ended(self, fails_first: bool) -> None:
        scenario, call = called_again()
        if fails_first:
            scenario.fail(call)
        scenario.gone("p")
        assert scenario.answer(call) == []
        assert scenario.held() == {}
        assert calls(scenario.passes(30)) == []

    def test_a_plugin_that_went_long_before_the_recovery_is_waited_for_after_a_second_restart_too(self) -> None:
        scenario = Scenario(is_recovering=True)
        scenario.connect()
        scenario.disconnect()
        scenario.passes(400)
        scenario.happens("recovered", knows(resources=[GPU]))
        assert is_settling(scenario.manager, GPU)
        assert is_settling(scenario.restarted().manager, GPU)

    def test_a_resource_that_the_api_does_not_have_is_published_at_once(self) -> None:
        scenario = Scenario(is_recovering=True)
        scenario.connect()
        scenario.happens("recovered", knows(resources=[NIC]))
        assert not is_settling(scenario.manager, GPU)

    def test_a_resource_without_allocations_and_without_plugin_is_stopped(self) -> None:
        scenario = lost(GPU)
        assert published(scenario.happens("recovered", knows(resources=[GPU, NIC]))) == {GPU, NIC}
        assert not is_settling(scenario.manager, GPU)
        assert is_settling(scenario.manager, NIC)
        assert published(scenario.passes(SETTLE_SECONDS)) == {NIC}
        assert scenario.snapshot(NIC).state is EndpointState.STOPPED
        assert set(scenario.manager.checkpoint().registered) == {GPU, NIC}
