"""Selected devices for given NUMA nodes, and GetPreferredAllocation's arguments. Rows follow the kubelet's own tables."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.selection import Crowds, select
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.allocation.test_topology import on
from tests.unit.node_agent.devicemanager.scenario import ids


def aligned(devices: dict[str, Device], ids: tuple[str, ...]) -> dict[int, int]:
    """How many of these devices are on each node."""
    return dict(Counter(node for device_id in ids for node in devices[device_id].numa_nodes))


# near to both nodes
WIDE = {"d0": Device("d0", numa_nodes=(0, 1))}


@pytest.mark.kubelet("behaviour 43", "scenario 18", "scenario 19")
@pytest.mark.parametrize(
    ("devices", "affinity", "chosen"),
    [
        pytest.param(on(0, 0, 0, 1, 1), {0, 1}, ("d3",), id="of the node with fewer free devices"),
        pytest.param(on(0, 0, None) | WIDE, {1}, ("d0",), id="a device of two nodes is near to both"),
        pytest.param(on(0, 0) | WIDE, {0}, ("d1",), id="a device of one node before one of two"),
        pytest.param(on(None, 0, 1), {0}, ("d1", "d2"), id="one of another node before one of none"),
        pytest.param(on(1, 0, 1, None), None, ("d0",), id="any node"),
    ],
)
def test_which_devices_come_first(
    devices: dict[str, Device], affinity: set[int] | None, chosen: tuple[str, ...]
) -> None:
    nodes = None if affinity is None else frozenset(affinity)
    assert select(devices, len(chosen), (), sorted(devices), nodes).completed() == chosen


def test_devices_of_different_sets_of_nodes_that_are_as_near_are_taken_in_order() -> None:
    at_nodes: Crowds = {(0, 1): ["d0", "d2"], (0, 2): ["d1"]}
    # where each of them is, is known: no device is looked at
    assert select({}, 2, (), ("d0", "d1", "d2"), frozenset({0}), at_nodes).completed() == ("d0", "d1")


def test_the_pods_own_devices_come_before_near_ones() -> None:
    devices = on(0, 1, 1)
    assert select(devices, 2, ("d0",), ("d1", "d2"), frozenset({1})).completed() == ("d0", "d1")
    assert select(devices, 1, ("d0", "d1"), ("d2",), frozenset({1})).completed() == ("d1",)


@pytest.mark.parametrize(
    ("way", "expected"), [*enumerate([("d0", "d1"), ("d0", "d2"), ("d0", "d4"), ("d2", "d3"), ("d2", "d4")])]
)
def test_other_ways_to_take_devices_are_those_of_other_nodes(way: int, expected: tuple[str, ...]) -> None:
    devices = on(0, 0, 1, 1, 2)
    offered: list[Sequence[tuple[int, ...]]] = []

    def choose(ways: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        offered.append(ways)
        return ways[way % len(ways)]

    picked = select(devices, 2, (), sorted(devices), None)
    assert picked.varied(devices, choose, 64).completed() == expected
    for most in (3, 1):
        picked.varied(devices, choose, most)
    # how many of each node, at most so many ways; nodes after so many count as one
    ways = ((2, 0, 0), (1, 1, 0), (1, 0, 1), (0, 2, 0), (0, 1, 1))
    assert offered == [ways, ways[:3], ((2, 0),)]


NEAR = [0] * 8
HALF = [0] * 4 + [1] * 4
HUNDREDS = on(*[0] * 100, *[1] * 100)


class TestPreferred:
    @pytest.mark.kubelet("scenario 56")
    @pytest.mark.parametrize(
        ("affinity", "preferred", "expected"),
        [
            pytest.param({0}, ["d0", "d19", "d83", "d42", "d77"], {0: 5}, id="near ones are followed"),
            pytest.param({0}, ["d0", "d19", "d83", "d150", "d186"], {0: 5}, id="far ones are passed over"),
            pytest.param({1}, ["d0", "d19", "d83", "bogus", "d186"], {1: 5}, id="unknown ones too"),
            pytest.param({0, 1}, ["d0", "d19", "d83", "d150", "d186"], {0: 3, 1: 2}, id="of both nodes"),
        ],
    )
    def test_is_respected_among_near_devices(
        self, affinity: set[int], preferred: list[str], expected: dict[int, int]
    ) -> None:
        chosen = select(HUNDREDS, 5, (), sorted(HUNDREDS), frozenset(affinity)).completed(preferred)
        assert len(set(chosen)) == 5
        assert aligned(HUNDREDS, chosen) == expected
        near = {i for i in preferred if i in HUNDREDS and affinity.issuperset(HUNDREDS[i].numa_nodes)}
        assert near <= set(chosen)

    @pytest.mark.kubelet("scenario 57")
    @pytest.mark.parametrize(
        ("nodes", "count", "held", "reusable", "available", "must_include"),
        [
            pytest.param(NEAR[:4], 1, "", "", "0123", "", id="one, nothing held"),
            pytest.param(NEAR, 4, "", "05", "01234567", "05", id="four, two of the pod's own"),
            pytest.param(NEAR, 4, "14", "05", "023567", "05", id="four, two of the pod's own, two held"),
            pytest.param(HALF, 6, "", "16", "01234567", "01236", id="six, near ones settled, two of the pod's own"),
            pytest.param(HALF, 6, "07", "16", "123456", "1236", id="six, near ones settled, two held"),
        ],
    )
    def test_arguments_of_the_call(
        self, nodes: list[int], count: int, held: str, reusable: str, available: str, must_include: str
    ) -> None:
        devices = on(*nodes)
        free = sorted(devices.keys() - set(ids(held)) - set(ids(reusable)))
        picked = select(devices, count, ids(reusable), free, frozenset({0}))
        assert picked.candidates() == ids(available)
        assert sorted(picked.taken) == list(ids(must_include))
        assert picked.count == count


@given(nodes=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=12), data=st.data())
def test_the_requested_number_once_each_with_most_near_ones(nodes: list[int | None], data: st.DataObject) -> None:
    devices = on(*nodes)
    count = data.draw(st.integers(1, len(devices)))
    own = data.draw(st.sets(st.sampled_from(sorted(devices))))
    affinity = data.draw(st.one_of(st.none(), st.frozensets(st.integers(0, 3), min_size=1)))
    preferred = data.draw(st.lists(st.sampled_from([*sorted(devices), "bogus"])))
    picked = select(devices, count, sorted(own), sorted(devices.keys() - own), affinity)
    chosen = picked.completed(preferred)
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= devices.keys()
    assert set(picked.candidates()) >= set(chosen)
    assert len(own & set(chosen)) == min(count, len(own))
    if affinity is not None:
        near_free = [i for i in devices.keys() - own if affinity.issuperset(devices[i].numa_nodes or (-1,))]
        fresh = set(chosen) - own
        assert len(fresh & set(near_free)) == min(len(fresh), len(near_free))
