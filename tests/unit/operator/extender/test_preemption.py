"""Which pods end for another one: those that kube-scheduler proposes, and the fewest more; no node where that is no help."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.preemption import choose
from nodedevice_operator.objects.node_parts import PodHolding

from tests.fakes.steps import finished
from tests.unit.operator.extender import fleets
from tests.unit.operator.extender.fleets import needs

TOTAL = 80
# node -> by pod its GPU, units and priority
Layout = dict[str, dict[str, tuple[int, int, int]]]
Victims = dict[str, list[str]]


def fleet(layout: Layout, healthy: int = TOTAL, listed: bool = True, static: str = "") -> Fleet:
    """Pods hold their units by the status, or are only bound with them."""
    made = Fleet()
    for node, pods in layout.items():
        used = [sum(units for gpu, units, _ in pods.values() if gpu == i) if listed else 0 for i in range(2)]
        held = {uid: (PodHolding(gpu, units),) for uid, (gpu, units, _) in pods.items()} if listed else {}
        free = (max(0, healthy - each) for each in used)
        made.node_changed(fleets.node(node, *free, healthy=healthy, holders=held), 0)
        for uid, (gpu, units, priority) in pods.items():
            more = {"priority": priority, "static_uid": uid if uid == static else ""}
            made.pod_changed(fleets.pod(uid, needs(units), node, fleets.given(f"g{gpu}", units), **more), 0)
    return made


FULL: Layout = {
    "a": {"low": (0, 50, 1), "mid": (0, 30, 5), "small": (1, 30, 1), "tiny": (1, 30, 1), "high": (1, 20, 9)}
}
TWO = {"x": (0, 80, 1), "y": (1, 80, 2)}

ROWS = {
    "one more on the same GPU": (FULL, 80, 9, {"a": ["low"]}, {"a": ["mid", "low"]}),
    "the lowest priority of as many": (FULL, 30, 9, {"a": ["other"]}, {"a": ["other", "low"]}),
    "a pod of higher priority stays": (FULL, 70, 6, {"a": ["small", "tiny"]}, {"a": ["mid", "small", "tiny", "low"]}),
    "a node that nobody knows": (FULL, 30, 9, {"b": ["low"]}, {}),
    "each node for itself": (FULL | {"b": TWO}, 80, 3, {"a": ["low"], "b": ["y"]}, {"b": ["y"]}),
}


@pytest.mark.parametrize("is_listed", [True, False], ids=["held", "promised"])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_who_ends(row: tuple[Layout, int, int, Victims, Victims], is_listed: bool) -> None:
    layout, count, priority, proposed, expected = row
    assert finished(choose(fleet(layout, listed=is_listed), "new", needs(count), priority, proposed)) == expected


def test_parts_of_a_broken_gpu_are_not_free_when_their_pod_is_gone() -> None:
    assert finished(choose(fleet(FULL, healthy=0), "new", needs(30), 9, {"a": ["low"]})) == {}


def test_a_static_pod_is_no_further_victim() -> None:
    known = fleet({"a": {"low": (0, 80, 1), "x": (1, 80, 2)}}, static="low")
    assert finished(choose(known, "new", needs(80), 9, {"a": ["other"]})) == {"a": ["other", "x"]}


def test_work_is_bounded() -> None:
    layout: Layout = {f"n{i}": {"low": (0, 80, 1), "x": (1, 80, 2)} for i in range(4)}
    layout = {node: {f"{node}-{uid}": of for uid, of in pods.items()} for node, pods in layout.items()}
    proposed = {node: ["other"] for node in layout}
    assert len(finished(choose(fleet(layout), "new", needs(80), 9, proposed))) == 4
    assert len(finished(choose(fleet(layout), "new", needs(80), 9, proposed, plans=8))) == 1


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    made: Layout = {}
    for node in ("a", "b"):
        room = [TOTAL, TOTAL]
        pods = {}
        for i in range(draw(st.integers(0, 6))):
            gpu, units = draw(st.integers(0, 1)), draw(st.integers(1, 40))
            if units <= room[gpu]:
                room[gpu] -= units
                pods[f"{node}{i}"] = (gpu, units, draw(st.integers(0, 4)))
        made[node] = pods
    return made


@settings(deadline=None)
@given(layouts(), st.integers(1, TOTAL), st.integers(0, 4), st.data())
def test_it_fits_then_with_the_fewest_of_lower_priority_of_that_node(
    layout: Layout, count: int, priority: int, data: st.DataObject
) -> None:
    known = fleet(layout)
    victims = {}
    for node, pods in layout.items():
        lower = [uid for uid, (*_, of) in pods.items() if of < priority]
        victims[node] = sorted(data.draw(st.sets(st.sampled_from(lower)) if lower else st.just(set())))
    found = finished(choose(known, "new", needs(count), priority, victims))
    for node, proposed in victims.items():
        lower = [uid for uid, (*_, of) in layout[node].items() if of < priority and uid not in proposed]
        least = [
            n
            for n in range(len(lower) + 1)
            if any(_fits(layout[node], count, {*proposed, *of}) for of in combinations(lower, n))
        ]
        if not least or not (proposed or least[0]):
            assert node not in found
            continue
        more = set(found[node]) - set(proposed)
        assert set(proposed) <= set(found[node])
        assert more <= set(lower)
        assert len(more) == least[0]
        assert _fits(layout[node], count, set(found[node]))


def _fits(pods: dict[str, tuple[int, int, int]], count: int, gone: set[str]) -> bool:
    used = [sum(units for uid, (on, units, _) in pods.items() if on == gpu and uid not in gone) for gpu in (0, 1)]
    return TOTAL - min(used) >= count
