"""The book of allocations: a device belongs to one pod, in any number of its containers."""

import pytest
from nodedevice_agent.devicemanager.allocation import answer_limit
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.records.allocations import by_numa
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, held_by


def book(*entries: tuple[str, str, tuple[str, ...]]) -> AllocationBook:
    """From (pod uid, container, device IDs)."""
    filled = AllocationBook({name: Resource(name) for name in (GPU, NIC)})
    for uid, container, ids in entries:
        filled.add(held_by(uid, *ids, container=container))
    return filled


def test_two_containers_of_one_pod_may_have_the_same_device() -> None:
    filled = book(("a", "init", ("d0", "d1")), ("a", "main", ("d0",)))
    assert filled.resources[GPU].use.holders == {"d0": "a", "d1": "a"}


def test_rejects_a_device_of_another_pod_and_adds_nothing() -> None:
    filled = book(("a", "main", ("d1",)))
    with pytest.raises(ValueError, match="d1 is held by pod a"):
        filled.add(held_by("b", "d0", "d1"))
    assert filled.resources[GPU].use.holders == {"d1": "a"}
    assert filled.by_pod.keys() == {"a"}


@pytest.mark.kubelet("scenario 53")
def test_the_same_id_of_two_resources_are_two_devices() -> None:
    filled = book(("a", "main", ("d0",)))
    filled.add(held_by("b", "d0", name=NIC))
    assert (filled.resources[GPU].use.holders, filled.resources[NIC].use.holders) == ({"d0": "a"}, {"d0": "b"})


def test_release_removes_all_of_a_pod_and_nothing_else() -> None:
    filled = book(("a", "init", ("d0",)), ("a", "main", ("d0",)), ("b", "main", ("d1",)))
    filled.add(held_by("a", "n0", name=NIC))
    assert filled.release("a") == {GPU, NIC}
    assert filled.resources[GPU].use.holders == {"d1": "b"}
    assert filled.release("a") == frozenset()


def test_releasing_is_reported_once_and_ends_with_the_release() -> None:
    filled = book(("a", "main", ("d0",)))
    assert filled.set_releasing("a", 7.0) == {GPU}
    assert filled.set_releasing("a", 8.0) == frozenset()
    assert filled.set_releasing("stranger", 7.0) == frozenset()
    assert filled.releasing == {"a": 7.0}
    filled.release("a")
    assert filled.releasing == {}


def test_a_pod_that_is_there_again_holds_its_devices_again() -> None:
    found = book(("p", "main", ("d0",)), ("q", "main", ("d1",)))
    names = found.set_releasing("p", 1.0)
    assert names
    assert (found.set_held_again("p"), found.releasing) == (names, {})
    assert found.set_held_again("p") == frozenset()


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


def test_responses_are_counted_as_long_as_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = book()
    filled.add(held_by("a", "d0", response=b"12345"))
    filled.add(held_by("b", "n0", name=NIC, response=b"123"))
    # each octet is there twice: as it came, and decoded
    monkeypatch.setattr(answer_limit, "MAX_OCTETS_OF_DOMAIN", 2 * 9)
    assert not filled.no_room(held_by("c", "d1", response=b"1"), ())
    assert "example.com" in filled.no_room(held_by("c", "d1", response=b"12"), ())
    assert "example.com" in filled.no_room(held_by("c", "d1", response=b"1"), [held_by("d", "d2", response=b"1")])
    # in place of the first one
    assert not filled.no_room(held_by("a", "d0", response=b"123456"), ())
    filled.release("b")
    assert not filled.no_room(held_by("c", "d1", response=b"1234"), ())


def test_an_allocation_is_unanswered_until_its_response_is_there() -> None:
    filled = book()
    filled.add(held_by("a", "d0", response=None))
    assert [*filled.unanswered] == [("a", "main", GPU)]
    filled.add(held_by("a", "d0"))
    assert not filled.unanswered
