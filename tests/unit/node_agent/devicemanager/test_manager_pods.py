"""Pods arrive, are served, and end; and events during a plugin call."""

import pytest
from nodedevice_agent.devicemanager.allocation import allocator, pod_allocation
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint
from nodedevice_agent.devicemanager.allocation.pod_allocation import PodAllocation
from nodedevice_agent.devicemanager.effects import CallAllocate, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.releasing import RELEASING_SETTLE_SECONDS
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import (
    GPU,
    NIC,
    Scenario,
    calls,
    container,
    held_by,
    is_saved,
    pod,
    published,
)


def asked(count: int = 2) -> tuple[Scenario, CallAllocate]:
    """A pod arrives at so many devices; the call that is made for it."""
    scenario = Scenario.with_plugin(count)
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    return scenario, call


class TestServed:
    @pytest.mark.kubelet("behaviour 50")
    def test_a_pod_is_saved_durably_before_anything_is_published(self) -> None:
        scenario, call = asked()
        effects = scenario.answer(call)
        assert effects == [SaveCheckpoint(durable=True, pod_uid="p"), Publish(GPU)]
        assert scenario.held() == {"p/main": ("d0",)}

    def test_the_response_is_kept_unchanged(self) -> None:
        scenario, call = asked()
        scenario.answer(call, b"\x0a\x00anything")
        (kept,) = scenario.manager.book
        assert kept.response == b"\x0a\x00anything"

    def test_numa_nodes_are_those_at_the_time_of_the_response(self) -> None:
        scenario = Scenario.with_plugin([Device("d0", numa_nodes=(1,)), Device("d1", numa_nodes=(0, 1))])
        scenario.run(pod("p", gpu=2))
        (kept,) = scenario.manager.book
        assert kept.ids_by_numa == {0: ("d1",), 1: ("d0", "d1")}

    def test_the_same_pod_again_changes_nothing(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
        assert scenario.see(pod("p", gpu=1)) == []

    @pytest.mark.kubelet("weak spot 3")
    def test_other_pods_are_served_during_a_call(self) -> None:
        scenario, hanging = asked()
        scenario.run(pod("q", gpu=1))
        assert scenario.held() == {"q/main": ("d1",)}
        scenario.answer(hanging)
        assert scenario.held() == {"p/main": ("d0",), "q/main": ("d1",)}

    def test_a_pod_in_progress_is_no_longer_pending(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        scenario.see(pod("q", gpu=1))
        (call,) = calls(effects := scenario.gone("p"))
        assert (published(effects), scenario.reasons()) == ({GPU}, {})
        scenario.fail(call)
        assert scenario.reasons() == {"q": "AllocateFailed"}

    def test_a_device_in_flight_still_counts_as_available(self) -> None:
        scenario, call = asked()
        assert (scenario.snapshot().allocated, scenario.snapshot().available) == (0, 2)
        scenario.answer(call)
        assert (scenario.snapshot().allocated, scenario.snapshot().available) == (1, 1)


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
        scenario, call = asked()
        scenario.lists(devices)
        (again,) = calls(scenario.answer(call))
        assert again.device_ids == ("d1",)
        scenario.answer(again)
        assert scenario.held() == {"p/main": ("d1",)}

    def test_a_device_that_was_cordoned_meanwhile_is_not_allocated(self) -> None:
        scenario, call = asked()
        scenario.cordon(GPU, ["d0"])
        (again,) = calls(scenario.answer(call))
        assert again.device_ids == ("d1",)

    def test_a_device_that_was_removed_and_listed_again_is_allocated(self) -> None:
        scenario, call = asked()
        scenario.lists(["d1"])
        scenario.lists(["d0", "d1"])
        scenario.answer(call)
        assert scenario.held() == {"p/main": ("d0",)}

    def test_an_allocated_device_is_checked_again_until_the_pod_has_all(self) -> None:
        scenario = Scenario.with_plugin(2, nics=["n0"])
        (first,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
        (second,) = calls(scenario.answer(first))
        scenario.lists(["d1"])
        (again,) = calls(scenario.answer(second))
        assert (again.resource_name, again.device_ids) == (GPU, ("d1",))

    @pytest.mark.kubelet("weak spot 25")
    def test_the_pod_is_pending_when_no_other_device_is_left(self) -> None:
        scenario, call = asked(1)
        scenario.lists([])
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({}, {"p": "NotEnoughDevices"})
        assert scenario.manager.resources[GPU].reserved == {}

    @pytest.mark.kubelet("behaviour 48")
    def test_the_plugin_disconnects(self) -> None:
        scenario, call = asked()
        scenario.disconnect()
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({}, {"p": "EndpointStopped"})

    def test_the_pod_ends_and_its_device_is_allocated_to_the_next(self) -> None:
        scenario, call = asked(1)
        scenario.see(pod("q", gpu=1))
        (for_q,) = calls(scenario.gone("p"))
        assert for_q.device_ids == ("d0",)
        # the late response for the first pod is ignored
        assert scenario.answer(call) == []
        scenario.answer(for_q)
        assert scenario.held() == {"q/main": ("d0",)}

    def test_an_unexpected_response_is_ignored(self) -> None:
        scenario, call = asked()
        scenario.answer(call)
        assert scenario.answer(call) == []
        assert scenario.fail(call) == []
        assert scenario.happens("preferred", 4711, ()) == []

    def test_a_pod_that_is_terminating_keeps_its_call(self) -> None:
        scenario, call = asked()
        assert calls(scenario.see(pod("p", gpu=1, is_terminating=True))) == []
        scenario.answer(call)
        assert scenario.held() == {"p/main": ("d0",)}

    def test_nothing_else_is_chosen_for_a_terminating_pod(self) -> None:
        scenario, call = asked()
        scenario.see(pod("p", gpu=1, is_terminating=True))
        scenario.lists(["d1"])
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({}, {})


class TestAllocateFails:
    @pytest.mark.kubelet("behaviour 53")
    def test_backoff_grows_to_a_minute(self) -> None:
        scenario, call = asked()
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
        scenario, call = asked()
        assert published(scenario.fail(call, "out of order")) == {GPU}
        (pending,) = scenario.manager.pending(GPU)
        assert (pending.reason, pending.message, pending.attempts) == ("AllocateFailed", "out of order", 1)

    def test_success_resets_the_backoff(self) -> None:
        scenario, call = asked()
        scenario.fail(call)
        (again,) = calls(scenario.passes(1))
        assert published(scenario.answer(again)) == {GPU}
        assert (scenario.held(), scenario.reasons()) == ({"p/main": ("d0",)}, {})
        assert scenario.manager.next_deadline() is None

    def test_a_change_of_the_resource_does_not_shorten_the_backoff(self) -> None:
        scenario, call = asked()
        scenario.fail(call)
        assert calls(scenario.lists(3)) == []
        assert len(calls(scenario.passes(1))) == 1

    def test_other_pods_are_served_during_the_backoff(self) -> None:
        scenario, failing = asked(1)
        scenario.see(pod("q", gpu=1))
        scenario.answer_all(scenario.fail(failing))
        assert scenario.held() == {"q/main": ("d0",)}
        assert calls(scenario.passes(1)) == []
        assert scenario.reasons() == {"p": "NotEnoughDevices"}

    def test_a_terminating_pod_is_not_retried_and_has_no_deadline(self) -> None:
        scenario, call = asked()
        scenario.fail(call)
        assert published(scenario.see(pod("p", gpu=1, is_terminating=True))) == {GPU}
        assert scenario.manager.next_deadline() is None
        assert calls(scenario.passes(60)) == []
        assert scenario.reasons() == {}

    def test_a_pod_that_ended_is_not_retried(self) -> None:
        scenario, call = asked()
        scenario.fail(call)
        assert published(scenario.gone("p")) == {GPU}
        assert scenario.passes(60) == []


class TestEnd:
    @pytest.mark.kubelet("behaviour 66", "weak spot 17")
    @pytest.mark.parametrize("how", ["over", "gone", "not in a complete list"])
    def test_devices_are_free_at_once_and_that_is_saved(self, how: str) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        scenario.see(pod("q", gpu=1))
        if how == "over":
            effects = scenario.see(pod("p", gpu=1, has_ended=True))
        elif how == "gone":
            effects = scenario.gone("p")
        else:
            effects = scenario.happens("pods_synced", [pod("q", gpu=1)])
        assert is_saved(effects, durable=False)
        assert published(effects) >= {GPU}
        scenario.answer_all(effects)
        assert scenario.held() == {"q/main": ("d0",)}

    def test_a_terminating_pod_keeps_its_devices(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        scenario.see(pod("p", gpu=1, is_terminating=True))
        assert scenario.held() == {"p/main": ("d0",)}

    def test_a_pod_that_was_terminating_when_first_seen_gets_nothing(self) -> None:
        scenario = Scenario.with_plugin(2)
        assert calls(scenario.see(pod("p", gpu=1, is_terminating=True))) == []
        assert calls(scenario.lists(3)) == []
        assert scenario.reasons() == {}

    @pytest.mark.kubelet("behaviour 70", "scenario 88")
    def test_a_pod_that_had_ended_when_first_seen_gets_nothing(self) -> None:
        scenario = Scenario.with_plugin(2)
        assert scenario.see(pod("p", gpu=1, has_ended=True)) == []

    def test_the_end_of_a_pod_frees_all_its_resources(self) -> None:
        scenario = Scenario.with_plugin(2, nics=["n0"]).run(pod("p", container("a", gpu=1, nic=1)))
        assert published(scenario.gone("p")) == {GPU, NIC}
        assert (scenario.held(), scenario.held(NIC)) == ({}, {})

    @pytest.mark.kubelet("weak spot 23")
    def test_a_held_device_that_is_no_longer_listed_counts_until_the_end(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
        scenario.lists(["d1"])
        seen = scenario.snapshot()
        assert (seen.total, seen.healthy, seen.allocated, seen.available) == (2, 1, 1, 1)
        scenario.gone("p")
        assert scenario.snapshot().total == 1

    @pytest.mark.kubelet("behaviour 40", "scenario 97")
    def test_an_unhealthy_held_device_keeps_its_pod(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        scenario.lists([Device("d0", healthy=False)])
        seen = scenario.snapshot()
        assert (seen.total, seen.healthy, seen.allocated, seen.available) == (1, 0, 1, 0)
        assert scenario.held() == {"p/main": ("d0",)}


class TestReleasing:
    """With a runtime that reports the end of containers, the end of the pod in the API is not enough."""

    def test_devices_are_free_only_when_the_runtime_reports_the_end(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        scenario.see(pod("q", gpu=1))
        scenario.gone("p")
        seen = scenario.snapshot()
        assert (seen.allocated, seen.releasing, seen.available) == (0, 1, 0)
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        effects = scenario.happens("containers_ended", "p")
        assert is_saved(effects, durable=False)
        scenario.answer_all(effects)
        assert (scenario.held(), scenario.snapshot().releasing) == ({"q/main": ("d0",)}, 0)

    def test_the_end_of_containers_of_a_running_pod_frees_nothing(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert scenario.happens("containers_ended", "p") == []
        assert scenario.happens("containers_ended", "stranger") == []
        assert scenario.held() == {"p/main": ("d0",)}

    def test_a_repeated_report_is_published_once(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert scenario.see(pod("p", gpu=1, has_ended=True)) == []
        scenario.now += RELEASING_SETTLE_SECONDS / 2
        assert scenario.gone("p") == []
        assert scenario.passes(RELEASING_SETTLE_SECONDS / 2) == [Publish(GPU)]
        assert scenario.passes(3600) == []

    def test_containers_that_end_with_their_pod_are_published_once(self) -> None:
        """The API often reports the end slightly earlier than the runtime: the state in between is not published."""
        scenario = Scenario.with_plugin(1, waits_for_runtime=True).run(pod("p", gpu=1))
        assert published(scenario.gone("p")) == set()
        assert published(scenario.happens("containers_ended", "p")) == {GPU}

    def test_a_pod_that_requests_them_is_published_at_once(self) -> None:
        """The released devices become reserved: the Node's number does not change."""
        scenario = Scenario.with_plugin(2, waits_for_runtime=True).run(pod("p", gpu=2))
        scenario.gone("p")
        assert published(scenario.see(pod("q", gpu=2))) == {GPU}
        seen = scenario.snapshot()
        assert (seen.releasing, seen.reserved, seen.available) == (2, 2, 0)
        assert published(scenario.gone("q")) == {GPU}, "and when it goes again"
        assert scenario.snapshot().reserved == 0

    def test_so_is_one_that_is_pending_for_another_resource(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True)
        scenario.plugin([], NIC)
        scenario.run(pod("p", gpu=1))
        scenario.gone("p")
        assert published(scenario.see(pod("q", gpu=1, nic=1))) >= {GPU}
        assert published(scenario.gone("q")) >= {GPU}

    def test_two_that_end_together_are_published_together(self) -> None:
        scenario = Scenario.with_plugin(2, waits_for_runtime=True).run(pod("p", gpu=1), pod("q", gpu=1))
        assert scenario.gone("p") + scenario.gone("q") == []
        assert scenario.passes(RELEASING_SETTLE_SECONDS) == [Publish(GPU)]

    def test_a_pod_without_devices_releases_nothing(self) -> None:
        scenario = Scenario.with_plugin(1, waits_for_runtime=True)
        scenario.see(pod("p"))
        assert scenario.gone("p") == []


class TestBackoff:
    """A pod whose plugin failed is retried when its backoff is over, whatever happens to other pods."""

    def failed(self, devices: int = 2) -> RuntimeScenario:
        scenario = RuntimeScenario.with_plugin(devices)
        (call,) = calls(scenario.see(pod("q", gpu=1)))
        scenario.fail(call)
        return scenario

    def test_the_same_pod_is_seen_once_more(self) -> None:
        assert calls(self.failed().see(pod("q", gpu=1))) == []

    def test_another_ends(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
        (call,) = calls(scenario.see(pod("q", gpu=1)))
        scenario.fail(call)
        assert calls(scenario.gone("p")) == []
        assert scenario.held() == {}

    def test_another_ends_while_it_is_being_allocated(self) -> None:
        scenario = self.failed()
        assert len(calls(scenario.see(pod("p", gpu=1)))) == 1
        assert calls(scenario.gone("p")) == []
        assert len(calls(scenario.passes(1))) == 1

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
        scenario.happens("pods_synced", [pod("p", gpu=1)])
        (call,) = calls(scenario.plugin(1))
        scenario.fail(call)
        assert calls(scenario.happens("pods_synced", [pod("p", gpu=1)])) == []
        assert len(calls(scenario.passes(1))) == 1

    def test_another_that_failed_earlier_is_retried(self) -> None:
        scenario = self.failed()
        scenario.passes(0.5)
        (call,) = calls(scenario.see(pod("r", gpu=1)))
        scenario.fail(call)
        assert len(calls(scenario.passes(0.5))) == 1
        assert len(calls(scenario.passes(0.5))) == 1

    def test_what_a_pod_waits_for_is_published_once(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1), pod("q", gpu=1))
        assert scenario.reasons() == {"q": "NotEnoughDevices"}
        assert scenario.manager.allocator.reconsider([GPU], scenario.now) == []


def test_a_pod_that_is_in_the_api_again_is_shown_as_holding() -> None:
    scenario = RuntimeScenario.with_plugin(1).run(pod("p", gpu=1))
    scenario.start(scenario.create("p"), "p")
    scenario.gone("p")
    scenario.passes(60)
    assert scenario.snapshot().releasing == 1
    assert GPU in published(scenario.see(pod("p", gpu=1)))
    assert scenario.snapshot().releasing == 0


def test_the_checkpoint_has_the_healthy_devices_of_a_plugin_that_serves() -> None:
    scenario = Scenario.with_plugin(["d0", Device("d1", healthy=False)])
    assert {name: tuple(ids) for name, ids in scenario.manager.checkpoint().registered.items()} == {GPU: ("d0",)}
    scenario.disconnect()
    assert scenario.manager.checkpoint().registered == {GPU: ()}


def test_no_pod_waits_for_the_disk_because_a_plugin_comes_lists_or_goes() -> None:
    scenario = Scenario.with_plugin(1)
    scenario.lists(2)
    scenario.disconnect()
    assert is_saved(scenario.effects, durable=False)
    assert not is_saved(scenario.effects, durable=True)


def test_a_response_is_awaited_until_it_comes_or_its_pod_ends() -> None:
    scenario, call = asked()
    (other,) = calls(scenario.see(pod("q", gpu=1)))
    is_awaited = scenario.manager.allocator.is_awaited
    assert is_awaited(call.ticket)
    scenario.gone("p")
    assert (is_awaited(call.ticket), is_awaited(other.ticket)) == (False, True)
    scenario.answer(other)
    assert not is_awaited(other.ticket)


def test_pods_that_come_at_once_have_their_turns_in_events_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose pods all wait for one list must not stand while each of them looks at all of its devices."""
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 600)
    scenario = Scenario.with_plugin(100)
    pods = [pod(f"p{number}", gpu=1) for number in range(10)]
    scenario.answer_all(scenario.happens("pods_synced", pods))
    assert [*scenario.held()] == ["p0/main", "p1/main"]
    for count in (4, 6, 8, 10):
        assert scenario.manager.next_deadline() == scenario.now
        scenario.answer_all(scenario.happens("tick"))
        assert len(scenario.held()) == count
    assert scenario.manager.next_deadline() is None
    assert scenario.manager.allocator.unallocated == {}


@pytest.mark.parametrize("is_list", [False, True], ids=["a list of pods", "a list of devices"])
@pytest.mark.parametrize(("most", "served"), [(712, 2), (713, 3)])
def test_an_event_looks_at_so_many_devices(
    monkeypatch: pytest.MonkeyPatch, most: int, served: int, is_list: bool
) -> None:
    """Each pod counts as 256 of them, beside the hundred that it looks at."""
    monkeypatch.setattr(allocator, "_MOST_LOOKS", most)
    pods = [pod(f"p{number}", gpu=1) for number in range(5)]
    if is_list:
        scenario = Scenario()
        scenario.connect()
        scenario.see(*pods)
        effects = scenario.lists(100)
    else:
        scenario = Scenario.with_plugin(100)
        effects = scenario.happens("pods_synced", pods)
    assert len(calls(effects)) == served


def test_pods_that_come_one_by_one_are_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 600)
    scenario = Scenario()
    scenario.connect()
    scenario.see(pod("first", gpu=1))
    # an event about all that wait comes before
    scenario.answer_all(scenario.lists(100))
    scenario.run(*(pod(f"p{number}", gpu=1) for number in range(5)))
    assert len(scenario.held()) == 6


def test_all_that_a_list_of_pods_ends_is_shown() -> None:
    scenario = Scenario.with_plugin(1, nics=["n0"]).run(pod("gone", gpu=1), pod("ended", nic=1))
    assert published(scenario.happens("pods_synced", [pod("ended", nic=1, has_ended=True)])) == {GPU, NIC}


def test_who_waits_is_tried_once_for_all_that_a_list_of_pods_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.with_plugin(4).run(pod("a", gpu=1), pod("b", gpu=1), pod("c", gpu=2))
    waiting = pod("waits", gpu=3)
    scenario.see(waiting)
    tried, shortage = [], PodAllocation.shortage

    def noted(current: PodAllocation) -> object:
        tried.append(current.pod.uid)
        return shortage(current)

    monkeypatch.setattr(PodAllocation, "shortage", noted)
    scenario.happens("pods_synced", [pod("c", gpu=2), waiting])
    assert tried == ["waits"]


def test_a_pod_is_tried_again_where_what_it_lacks_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario.with_plugin(1, nics=["n0"]).run(pod("other", gpu=1))
    scenario.see(pod("p", gpu=1, nic=1))
    tried, shortage = [], PodAllocation.shortage

    def noted(current: PodAllocation) -> object:
        tried.append(current.pod.uid)
        return shortage(current)

    monkeypatch.setattr(PodAllocation, "shortage", noted)
    scenario.lists(["n0", "n1"], NIC, 2)
    assert tried == []
    scenario.lists(2)
    assert tried == ["p"]


@pytest.mark.parametrize(
    ("is_silent", "why"), [(False, "is not connected"), (True, "does not answer"), (None, "is not connected")]
)
def test_a_pod_says_why_its_plugin_serves_nothing(is_silent: bool | None, why: str) -> None:
    """None: it has not registered since the restart."""
    scenario = Scenario.with_plugin(1)
    if is_silent is None:
        scenario = scenario.restarted()
    else:
        scenario.manager.disconnected(GPU, 1, scenario.now, is_silent=is_silent)
    scenario.see(pod("p", gpu=1))
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message == f"the device plugin of {GPU} {why}"
    assert scenario.snapshot().is_silent is bool(is_silent)


def test_where_no_device_has_a_node_nobody_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred thousand devices, for each pod."""

    def asked_for(*_: object) -> None:
        raise AssertionError("nodes are asked for")

    monkeypatch.setattr(pod_allocation, "crowds", asked_for)
    monkeypatch.setattr(Resource, "numa_nodes", asked_for)
    assert Scenario.with_plugin(2).run(pod("p", gpu=1)).held() == {"p/main": ("d0",)}


def test_a_pod_that_changes_during_its_call_is_served_as_it_was() -> None:
    scenario, call = asked()
    assert scenario.see(pod("p", gpu=2)) == []
    scenario.answer(call)
    assert scenario.held() == {"p/main": ("d0",)}


def test_nothing_is_to_be_had_of_a_plugin_that_is_gone() -> None:
    scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
    assert scenario.manager.resources[GPU].allocatable() == ("d0", "d1")
    scenario.disconnect()
    assert scenario.manager.resources[GPU].allocatable() == ()


def test_a_pod_that_goes_before_its_turn_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_MOST_LOOKS", 1)
    scenario = Scenario.with_plugin(2)
    scenario.answer_all(scenario.happens("pods_synced", [pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=1)]))
    scenario.gone("q")
    scenario.answer_all(scenario.happens("tick"))
    assert [*scenario.held()] == ["p/main", "r/main"]
    assert scenario.manager.next_deadline() is None


def test_what_a_list_of_pods_frees_goes_to_who_waits_longest() -> None:
    for ended in ([], [pod("old", gpu=1, has_ended=True)]):
        scenario = Scenario.with_plugin(1).run(pod("old", gpu=1))
        scenario.run(pod("waits", gpu=1))
        scenario.answer_all(scenario.happens("pods_synced", [*ended, pod("waits", gpu=1), pod("new", gpu=1)]))
        assert [*scenario.held()] == ["waits/main"]
