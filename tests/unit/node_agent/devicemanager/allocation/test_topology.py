"""Topology: which NUMA nodes could serve one resource, and a policy's decision for the hints of several.

Hints are compared with the kubelet's in tests/conformance/oracle/test_hints.py; decisions here, with every combination of hints.
"""

from collections.abc import Iterable
from functools import reduce
from itertools import product
from operator import and_

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.topology import (
    Hint,
    Hints,
    Merged,
    Topology,
    TopologyPolicy,
    hints,
    merge,
)
from nodedevice_agent.devicemanager.resources.devices import Device

TWO = (0, 1)
ONLY_0, ONLY_1, BOTH = 0b01, 0b10, 0b11


def on(*nodes: int | None, healthy: bool = True) -> dict[str, Device]:
    """Devices d0, d1, ... on these nodes; None has no node."""
    return {f"d{i}": Device(f"d{i}", healthy, () if node is None else (node,)) for i, node in enumerate(nodes)}


def good(*masks: int) -> tuple[Hint, ...]:
    return tuple(Hint(mask, True) for mask in masks)


def bad(*masks: int) -> tuple[Hint, ...]:
    return tuple(Hint(mask, False) for mask in masks)


class TestReusable:
    """Devices of the pod's init containers: each of them must be near."""

    def test_rules_out_nodes_that_leave_one_out(self) -> None:
        assert hints(on(0, 1, 1), 1, ("d1", "d2"), ("d0",), TWO) == good(ONLY_0) + bad(BOTH)

    def test_without_a_node_rules_nothing_out_and_counts_nothing(self) -> None:
        devices = on(None, 0, 1)
        assert hints(devices, 1, ("d1", "d2"), ("d0",), TWO) == good(ONLY_0, ONLY_1) + bad(BOTH)
        assert hints(devices, 2, ("d1",), ("d0",), TWO) == ()

    def test_alone_is_enough(self) -> None:
        assert hints(on(0), 1, (), ("d0",), (0, 1, 2, 3)) == good(ONLY_0)


class TestWhichNodes:
    @pytest.mark.kubelet("scenario 54", "scenario 59")
    def test_only_those_that_have_devices(self) -> None:
        assert hints(on(3, 5), 1, ("d0", "d1"), (), (0, 3, 5, 7)) == (good(1 << 3, 1 << 5) + bad(1 << 3 | 1 << 5))

    @pytest.mark.kubelet("scenario 60", "weak spot 21")
    def test_cost_depends_only_on_nodes_with_devices(self) -> None:
        # iterating over every set of 36 nodes would never end
        assert len(hints(on(0, 1), 1, ("d0", "d1"), (), range(36)) or ()) == 3


NODES = (0, 1, 2, 3)
WHOLE = 0b1111
ALIGNING = [policy for policy in TopologyPolicy if policy is not TopologyPolicy.NONE]


def merged(policy: TopologyPolicy, *resources: Hints, nodes: tuple[int, ...] = NODES) -> Merged:
    return merge(Topology(policy, numa_nodes=nodes), resources)


def near(*nodes: int) -> Merged:
    return Merged(frozenset(nodes), True)


ANYWHERE = Merged(None, True)


def test_on_a_machine_of_one_node_any_device_fits() -> None:
    assert merged(TopologyPolicy.SINGLE_NUMA_NODE, good(1), nodes=(0,)) == ANYWHERE
    assert merged(TopologyPolicy.RESTRICTED, good(1), nodes=(0,)) == near(0)


@st.composite
def one_resource(draw: st.DrawFn) -> Hints:
    """Hints of one resource: the preferred ones all have the same, smallest size."""
    if not draw(st.booleans()):
        return None
    masks = draw(st.sets(st.integers(1, WHOLE), max_size=6))
    size = draw(st.integers(1, 4))
    return tuple(Hint(m, m.bit_count() == size) for m in sorted(masks, key=lambda m: (m.bit_count(), m)))


@pytest.mark.kubelet("scenario 61")
@pytest.mark.parametrize("policy", ALIGNING)
@given(resources=st.lists(one_resource(), max_size=4))
def test_equals_the_best_of_every_combination(policy: TopologyPolicy, resources: list[Hints]) -> None:
    found, expected = merged(policy, *resources), combined(policy, resources)
    assert found.is_admitted == expected.is_admitted
    # without any preference, or without resources, no nodes are needed
    if found.is_admitted and any(of_resource is not None for of_resource in resources):
        assert found.affinity == expected.affinity


def combined(policy: TopologyPolicy, resources: Iterable[Hints]) -> Merged:
    """The rule itself, as the kubelet states it: every combination is merged and the best one stays."""
    choices: list[list[tuple[int | None, bool]]] = [
        [(None, True)] if hints is None else [(h.mask, h.is_preferred) for h in hints] or [(None, False)]
        for hints in resources
    ]
    needed = max((min(m.bit_count() for m, _ in v if m) for v in choices if any(m for m, _ in v)), default=0)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        choices = [[(m, p) for m, p in v if p and (m is None or m.bit_count() == 1)] for v in choices]
    best: tuple[int, bool] | None = None
    for combination in product(*choices):
        masks = [mask for mask, _ in combination if mask is not None]
        together = reduce(and_, masks, WHOLE)
        liked = all(is_preferred for _, is_preferred in combination) and len(set(masks)) <= 1
        if together and (best is None or is_better((together, liked), best, needed)):
            best = (together, liked)
    mask, liked = best or (WHOLE, False)
    admitted = policy is TopologyPolicy.BEST_EFFORT or liked
    affinity = frozenset(node for node in NODES if mask >> node & 1)
    return Merged(None if policy is TopologyPolicy.SINGLE_NUMA_NODE and mask == WHOLE else affinity, admitted)


def is_better(new: tuple[int, bool], old: tuple[int, bool], needed: int) -> bool:
    (mask, liked), (old_mask, old_liked) = new, old
    size, old_size = mask.bit_count(), old_mask.bit_count()
    narrower = (size, mask) < (old_size, old_mask)
    if liked != old_liked:
        return liked
    if liked or old_size > needed:
        return narrower
    if size > needed:
        return False
    return size > old_size or (size == old_size and narrower)
