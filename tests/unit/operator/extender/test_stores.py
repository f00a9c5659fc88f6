"""What the fleet is shown of lists and watches: each pod that is stored, and each that is gone, also under a name used again."""

from dataclasses import replace
from typing import Any

from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.stores import BOUND_PODS, NODE_PARTS, FleetStores
from nodedevice_operator.informers.memory_bounds import MOST_BYTES_OF_NODE
from nodedevice_operator.objects.bound_pod import BoundPod
from nodedevice_operator.objects.node_parts import NodeParts


class Shown(Fleet):
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def pod_changed(self, pod: BoundPod, now: float) -> None:
        self.changes.append(("changed", pod.uid))

    def pod_gone(self, uid: str, now: float) -> None:
        self.changes.append(("gone", uid))

    def node_changed(self, record: NodeParts, now: float) -> None:
        self.changes.append(("changed", record.name))

    def node_gone(self, key: str, now: float) -> None:
        self.changes.append(("gone", key))


def pod(uid: str, version: int, **more: Any) -> BoundPod:
    return BoundPod("default", "pod", uid, version, "node", **more)


def test_each_change_is_shown_once_whichever_way_it_comes() -> None:
    fleet, seen = Shown(), list[str]()
    store = FleetStores(fleet, seen.append).stores[BOUND_PODS.name]
    store.update(pod("a", 1))
    # nothing that matters has changed
    store.update(pod("a", 2))
    store.replace([pod("a", 2)], 3)
    assert fleet.changes == [("changed", "a")]
    # a list shows another pod of that name
    store.replace([pod("b", 5)], 6)
    store.replace([], 7)
    assert fleet.changes == [("changed", "a"), ("gone", "a"), ("changed", "b"), ("gone", "b")]
    # an event that was overtaken
    store.update(pod("b", 6))
    store.delete(("default", "pod"), "b", "node")
    assert len(fleet.changes) == 4
    assert seen == ["a", "a", "b", "b"]


def test_what_is_not_complete_is_named() -> None:
    stores = FleetStores(Shown(), lambda _: None)
    assert stores.waits_for() == ("the list of bound pods is not complete", "the list of NodeDevices is not complete")
    stores.stores[BOUND_PODS.name].replace([], 1)
    assert stores.waits_for() == ("the list of NodeDevices is not complete",)


def test_one_that_loses_its_lists_to_another_is_shown_again() -> None:
    fleet = Shown()
    store = FleetStores(fleet, lambda _: None).stores[NODE_PARTS.name]
    made = NodeParts("", "", 1, "n", "example.com/gpu", weight=MOST_BYTES_OF_NODE // 4)
    # the newer one comes first
    store.update(replace(made, name="newer", uid="b", created="2026-01-02T00:00:00Z"))
    store.update(replace(made, name="older", uid="a", created="2026-01-01T00:00:00Z"))
    store.delete("older", "a", "n")
    assert fleet.changes == [("changed", "newer"), ("changed", "newer"), ("changed", "older"), ("gone", "older")]
