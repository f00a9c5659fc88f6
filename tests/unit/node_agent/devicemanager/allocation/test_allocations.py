"""The book of allocations: a device belongs to one pod, in any number of its containers."""

import pytest
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.records.allocations import by_numa
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, held_by


def book(*entries: tuple[str, str, tuple[str, ...]]) -> AllocationBook:
    filled = AllocationBook({name: Resource(name) for name in (GPU, NIC)})
    for uid, container, ids in entries:
        filled.add(held_by(uid, *ids, container=container))
    return filled


def test_rejects_a_device_of_another_pod_and_adds_nothing() -> None:
    filled = book(("a", "main", ("d1",)))
    with pytest.raises(ValueError, match="d1 is held by pod a"):
        filled.add(held_by("b", "d0", "d1"))
    assert filled.resources[GPU].use.holders == {"d1": "a"}
    assert filled.by_pod.keys() == {"a"}


def test_entries_of_a_resource_are_sorted_by_pod_and_container() -> None:
    filled = book(("b", "main", ("d0",)), ("a", "z", ("d1",)), ("a", "b", ("d2",)))
    assert [(a.pod_uid, a.container) for a in filled.of_resource(GPU)] == [("a", "b"), ("a", "z"), ("b", "main")]


@pytest.mark.kubelet("scenario 47")
@pytest.mark.parametrize(
    ("numa_nodes", "sorted_ids"),
    [
        pytest.param({}, {-1: ("d0", "d1", "d2")}, id="nothing known"),
        pytest.param({"d0": (0,), "d1": (0,), "d2": (1,)}, {0: ("d0", "d1"), 1: ("d2",)}, id="one node each"),
        pytest.param({"d0": (0, 1)}, {-1: ("d1", "d2"), 0: ("d0",), 1: ("d0",)}, id="a device of two nodes is in both"),
        pytest.param({"d0": (10,), "d1": (2,), "d2": (1,)}, {1: ("d2",), 2: ("d1",), 10: ("d0",)}, id="numeric order"),
        pytest.param({"d0": ()}, {-1: ("d0", "d1", "d2")}, id="topology without nodes"),
    ],
)
def test_ids_by_numa_node(numa_nodes: dict[str, tuple[int, ...]], sorted_ids: dict[int, tuple[str, ...]]) -> None:
    found = by_numa(["d2", "d0", "d1"], numa_nodes)
    assert found == sorted_ids
    assert list(found) == sorted(sorted_ids)
