"""A policy's decision for the hints of several resources, compared with every combination of hints, as the kubelet tries them."""

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.topology import Hint, Hints, Merged, Topology, TopologyPolicy, merge

NODES = (0, 1, 2, 3)
WHOLE = 0b1111
ALIGNING = [policy for policy in TopologyPolicy if policy is not TopologyPolicy.NONE]


def merged(policy: TopologyPolicy, *resources: Hints, nodes: tuple[int, ...] = NODES) -> Merged:
    return merge(Topology(policy, numa_nodes=nodes), resources)


def good(*masks: int) -> tuple[Hint, ...]:
    return tuple(Hint(mask, True) for mask in masks)


def bad(*masks: int) -> tuple[Hint, ...]:
    return tuple(Hint(mask, False) for mask in masks)


def near(*nodes: int) -> Merged:
    return Merged(frozenset(nodes), True)


REFUSED = Merged(None, False)
ANYWHERE = Merged(None, True)


@pytest.mark.kubelet("scenario 61")
@pytest.mark.parametrize(
    ("resources", "best_effort", "restricted", "single"),
    [
        pytest.param([], ANYWHERE, ANYWHERE, ANYWHERE, id="nothing asked for"),
        pytest.param([None], ANYWHERE, ANYWHERE, ANYWHERE, id="no preference"),
        pytest.param([good(1, 2)], near(0), near(0), near(0), id="the lowest of equals"),
        pytest.param([good(1, 2), good(2)], near(1), near(1), near(1), id="the one that all prefer"),
        pytest.param([good(2), None], near(1), near(1), near(1), id="one without a preference is ignored"),
        pytest.param([good(1), good(2)], near(0, 1, 2, 3), REFUSED, REFUSED, id="nothing in common"),
        pytest.param([good(3)], near(0, 1), near(0, 1), REFUSED, id="two nodes at least"),
        pytest.param([good(1) + bad(3), good(2) + bad(3)], near(0), REFUSED, REFUSED, id="not preferred by all"),
        pytest.param([bad(3)], near(0, 1), REFUSED, REFUSED, id="fits, but is not preferred"),
        pytest.param([()], near(0, 1, 2, 3), REFUSED, REFUSED, id="impossible"),
        pytest.param([(), good(2)], near(1), REFUSED, REFUSED, id="impossible beside one that fits"),
        pytest.param(
            [bad(7), bad(3, 7)], near(0, 1, 2), REFUSED, REFUSED, id="as many nodes as the most demanding needs"
        ),
        pytest.param([bad(1, 3)], near(0), REFUSED, REFUSED, id="but no more"),
        pytest.param([good(WHOLE)], near(*NODES), near(*NODES), REFUSED, id="all nodes"),
    ],
)
def test_merge(resources: list[Hints], best_effort: Merged, restricted: Merged, single: Merged) -> None:
    assert merged(TopologyPolicy.NONE, *resources) == ANYWHERE
    assert merged(TopologyPolicy.BEST_EFFORT, *resources) == best_effort
    assert merged(TopologyPolicy.RESTRICTED, *resources) == restricted
    assert merged(TopologyPolicy.SINGLE_NUMA_NODE, *resources) == single


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
    if found.is_admitted and any(hints is not None for hints in resources):
        assert found.affinity == expected.affinity


def combined(policy: TopologyPolicy, resources: Iterable[Hints]) -> Merged:
    """The rule itself, as the kubelet states it: every combination is merged and the best one stays."""
    choices: list[list[tuple[int | None, bool]]] = []
    for hints in resources:
        if hints is None:
            choices.append([(None, True)])
        else:
            choices.append([(hint.mask, hint.is_preferred) for hint in hints] or [(None, False)])
    needed = max((min(m.bit_count() for m, _ in v if m) for v in choices if any(m for m, _ in v)), default=0)
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        choices = [[(m, p) for m, p in v if p and (m is None or m.bit_count() == 1)] for v in choices]
    best: tuple[int, bool] | None = None
    for combination in product(*choices):
        masks = [mask for mask, _ in combination if mask is not None]
        together = WHOLE
        for mask in masks:
            together &= mask
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
