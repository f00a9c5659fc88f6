"""A restart: state restored from the checkpoint, and plugins that register again."""

from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.effects import Publish
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import is_settling
from nodedevice_agent.devicemanager.static_pods import StaticPod

from tests.unit.node_agent.devicemanager.pods import GPU, HASH, pod
from tests.unit.node_agent.devicemanager.scenario import Scenario, calls, held_by, is_saved, published

SETTLE_SECONDS = 10
STATIC_POD = StaticPod(HASH, "default", "p")
# Unix seconds
NOON = 1_767_614_400


def restarted_with_one_pod(**options: Any) -> Scenario:
    return Scenario.with_plugin(3).run(pod("p", gpu=1)).restarted(**options)


class TestFromCheckpoint:
    @pytest.mark.kubelet("behaviour 64", "behaviour 71", "scenario 87", "weak spot 19")
    def test_what_pods_hold_is_restored_and_the_published_status_stays_until_the_plugin_lists(self) -> None:
        scenario = restarted_with_one_pod()
        assert scenario.held() == {"p/main": ("d0",)}
        assert scenario.snapshot().state is EndpointState.STOPPED
        effects = [*scenario.see(pod("p", gpu=1)), *scenario.connect()]
        assert is_settling(scenario.manager, GPU)
        effects += scenario.lists(3)
        assert (calls(effects), published(effects)) == ([], {GPU})
        assert not is_settling(scenario.manager, GPU)
        scenario.run(pod("q", gpu=2), pod("r", gpu=1))
        assert scenario.held() == {"p/main": ("d0",), "q/main": ("d1", "d2")}
        assert scenario.reasons() == {"r": "NotEnoughDevices"}

    @pytest.mark.kubelet("scenario 94")
    def test_the_published_status_stays_ten_seconds_at_most(self) -> None:
        scenario = restarted_with_one_pod()
        assert scenario.manager.next_deadline() == scenario.now + SETTLE_SECONDS
        assert scenario.passes(SETTLE_SECONDS - 1) == []
        assert scenario.passes(1) == [Publish(GPU)]
        assert not is_settling(scenario.manager, GPU)
        seen = scenario.snapshot()
        assert (seen.total, seen.allocated, seen.healthy) == (1, 1, 0)

    def test_an_empty_list_after_a_restart_is_published(self) -> None:
        assert published(Scenario.with_plugin([]).restarted().plugin([])) == {GPU}

    @pytest.mark.kubelet("behaviour 26")
    def test_the_grace_period_begins_again(self) -> None:
        scenario = restarted_with_one_pod()
        scenario.passes(299)
        assert scenario.snapshot().state is EndpointState.STOPPED
        scenario.passes(1)
        assert scenario.snapshot().state is EndpointState.GONE

    def test_the_name_of_a_pod_is_published_once_it_is_seen(self) -> None:
        scenario = restarted_with_one_pod()
        scenario.plugin(3)
        assert scenario.snapshot().held[0].pod is None
        assert published(scenario.see(pod("p", gpu=1))) == {GPU}
        assert scenario.snapshot().held[0].pod == pod("p", gpu=1)

    @pytest.mark.kubelet("behaviour 67", "scenario 91")
    def test_devices_of_a_pod_that_is_gone_meanwhile_are_released(self) -> None:
        scenario = restarted_with_one_pod()
        effects = scenario.happens("pod_events.synced", [])
        assert (published(effects), is_saved(effects, durable=False)) == ({GPU}, True)
        assert scenario.held() == {}

    @pytest.mark.kubelet("behaviour 38", "scenario 93")
    def test_a_pending_pod_is_pending_again(self) -> None:
        scenario = Scenario.with_plugin(["d0"]).run(pod("p", gpu=1), pod("q", gpu=1)).restarted()
        scenario.plugin(["d0"])
        scenario.happens("pod_events.synced", [pod("p", gpu=1), pod("q", gpu=1)])
        assert scenario.reasons() == {"q": "NotEnoughDevices"}

    def test_a_pod_that_ended_meanwhile_keeps_its_devices_until_the_runtime_reports(self) -> None:
        scenario = restarted_with_one_pod(waits_for_runtime=True)
        scenario.happens("pod_events.synced", [])
        assert scenario.snapshot().releasing == 1
        scenario.happens("releasing.containers_ended", "p")
        assert scenario.held() == {}

    @pytest.mark.parametrize("is_shown_first", [False, True])
    def test_a_static_pod_that_was_stored_under_its_mirror_pods_uid(self, is_shown_first: bool) -> None:
        scenario = Scenario(Checkpoint((replace(held_by("p", "d0"), since=NOON),)), waits_for_runtime=True)
        synced, shown = ("synced", [pod("p", gpu=1, config_hash=HASH)]), ("static_pods_listed", [STATIC_POD])
        for event, found in (shown, synced) if is_shown_first else (synced, shown):
            scenario.happens(f"pod_events.{event}", found)
            assert scenario.snapshot().releasing == 0
        assert [(a.pod_uid, a.since) for a in scenario.manager.book] == [(HASH, NOON)]
        # the kubelet makes the mirror pod again when somebody deletes it
        scenario.happens("pod_events.synced", [replace(pod("p2", gpu=1, config_hash=HASH), name="p")])
        assert scenario.held() == {f"{HASH}/main": ("d0",)}
        scenario.gone("p")
        assert scenario.snapshot().releasing == 0
        scenario.gone("p2")
        assert scenario.snapshot().releasing == 1


def reconnected() -> Scenario:
    scenario = Scenario(Checkpoint(registered={GPU: ("a", "b")}))
    scenario.plugin(["a", "b"])
    assert not is_settling(scenario.manager, GPU)
    return scenario


class TestReconnect:
    """A plugin that is connected right after a restart, then recreates its socket: nothing is published in between."""

    @pytest.mark.kubelet("weak spot 19")
    def test_a_second_registration_is_waited_for(self) -> None:
        scenario = reconnected()
        scenario.passes(1.0)
        scenario.disconnect()
        assert is_settling(scenario.manager, GPU)
        scenario.plugin(["a", "b"], endpoint=2)
        assert not is_settling(scenario.manager, GPU)
        assert scenario.snapshot().available == 2

    def test_after_the_settling_time_a_disconnect_is_published_at_once(self) -> None:
        scenario = reconnected()
        scenario.passes(SETTLE_SECONDS)
        assert Publish(GPU) in scenario.disconnect()
        assert not is_settling(scenario.manager, GPU)

    def test_not_for_a_resource_that_was_unknown_before(self) -> None:
        scenario = Scenario(Checkpoint())
        scenario.plugin(["a"])
        scenario.disconnect()
        assert not is_settling(scenario.manager, GPU)
