"""Pods arrive and are served."""

import pytest
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, is_saved, pod, published, with_call


class TestServed:
    @pytest.mark.kubelet("behaviour 50")
    def test_a_pod_is_saved_durably_before_anything_is_published(self) -> None:
        scenario, call = with_call()
        assert scenario.answer(call) == [SaveCheckpoint(durable=True, pod_uid="p"), Publish(GPU)]
        assert scenario.held() == {"p/main": ("d0",)}

    def test_numa_nodes_are_those_at_the_time_of_the_response(self) -> None:
        scenario = Scenario.with_plugin([Device("d0", numa_nodes=(1,)), Device("d1", numa_nodes=(0, 1))])
        scenario.run(pod("p", gpu=2))
        (kept,) = scenario.manager.book
        assert kept.ids_by_numa == {0: ("d1",), 1: ("d0", "d1")}

    def test_the_same_pod_again_changes_nothing(self) -> None:
        assert Scenario.with_plugin(2).run(pod("p", gpu=1)).see(pod("p", gpu=1)) == []

    @pytest.mark.kubelet("weak spot 3")
    def test_other_pods_are_served_during_a_call(self) -> None:
        scenario, hanging = with_call()
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
        scenario, call = with_call()
        assert (scenario.snapshot().allocated, scenario.snapshot().available) == (0, 2)
        scenario.answer(call)
        assert (scenario.snapshot().allocated, scenario.snapshot().available) == (1, 1)


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


@pytest.mark.parametrize(
    ("is_silent", "why"), [(False, "is not connected"), (True, "does not respond"), (None, "is not connected")]
)
def test_a_pod_says_why_its_plugin_serves_nothing(is_silent: bool | None, why: str) -> None:
    """None: it has not registered since the restart."""
    scenario = Scenario.with_plugin(1)
    if is_silent is None:
        scenario = scenario.restarted()
    else:
        scenario.manager.table.disconnected(GPU, 1, scenario.now, is_silent=is_silent)
    scenario.see(pod("p", gpu=1))
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message == f"the device plugin of {GPU} {why}"
    assert scenario.snapshot().is_silent is bool(is_silent)
