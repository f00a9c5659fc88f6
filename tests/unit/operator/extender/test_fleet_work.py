"""What the fleet counts of a pod whose watch event differs from its bind."""

import pytest
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.objects.bound_pod import BoundPod

from tests.unit.operator.extender.fleets import MEM, bind, finished, fleet, given, needs, node, pod


def test_a_pod_that_is_bound_elsewhere_than_its_parts_were_held_frees_them() -> None:
    known = fleet(node("a", 80), node("b", 80))
    known.score("p", needs(50), ["a", "b"], "binpack", 0)
    bind(known, "p", needs(50), "b")
    assert finished(known.filter("q", needs(60), ["a", "b"], 0)).fitting == ["a"]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(pod("p", needs(50), assigned=given("g1", 50)), id="with parts of another device"),
        pytest.param(pod("p", needs(50)), id="without its parts"),
        pytest.param(pod("p", needs(20), assigned=given("g0", 20)), id="that needs less"),
        pytest.param(pod("p", needs(50), "b", assigned=given("g0", 50)), id="on another node"),
        pytest.param(pod("p", needs(50, sm_percent=10), assigned=given("g0", 50)), id="with another annotation"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True], ids=["first", "again"])
def test_a_pod_that_a_watch_shows_otherwise_counts_as_it_shows_it(shown: BoundPod, is_known: bool) -> None:
    known, other = fleet(node("a", 80, 80), node("b", 80)), fleet(node("a", 80, 80), node("b", 80))
    bind(known, "p", needs(50))
    if is_known:
        known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    for each in (known, other):
        each.pod_changed(shown, 0)
    assert _left(known) == _left(other)
    assert known.pods_on(shown.node) == [shown]


def test_what_a_pod_holds_for_a_bind_ends_when_a_watch_shows_it() -> None:
    known = fleet(node("a", 80), node("b", 80))
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    known.score("p", needs(50), ["b"], "binpack", 0)
    known.pod_changed(pod("p", needs(50), assigned=given("g0", 50)), 0)
    assert finished(known.filter("q", needs(80), ["a", "b"], 0)).fitting == ["b"]


def _left(known: Fleet) -> dict[str, dict[str, int]]:
    found = {name: known.view(MEM, name) for name in ("a", "b")}
    return {name: view.free for name, view in found.items() if view is not None}
