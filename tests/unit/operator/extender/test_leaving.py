"""Room that comes without an event in kube-scheduler's watches: by pods that end, and by pods that may go elsewhere."""

from nodedevice_operator.extender.terminating_pods import LEAVING_SECONDS
from nodedevice_operator.objects.node_parts import PodHolding

from tests.unit.operator.extender.fleets import bind, finished, fleet, needs, node, pod

_ALL = {"held": (PodHolding(0, 80),)}


def test_parts_of_a_pod_that_is_gone_are_room_soon_until_a_status_shows_it() -> None:
    known = fleet(node("a", 0, holders=_ALL), node("b", 0, holders={"other": (PodHolding(0, 80),)}))
    known.pod_changed(pod("held", needs(80)), 0)
    assert finished(known.filter("new", needs(40), ["a", "b"], 1)).soon == ""
    known.pod_gone("held", 1)
    assert finished(known.filter("new", needs(40), ["a", "b"], 2)).soon == "a"
    assert finished(known.filter("new", needs(40), ["b"], 2)).soon == "", "not a node that was not asked about"
    assert finished(known.filter("new", needs(0), ["a", "b"], 2)).soon == "", "it fits already"
    assert finished(known.filter("new", needs(81), ["a", "b"], 2)).soon == "", "more than there will be"
    known.node_changed(node("a", 30, holders={}), 3)
    assert finished(known.filter("new", needs(40), ["a", "b"], 4)).soon == "", "the status shows all that there will be"


def test_a_pod_that_ends_is_room_soon_for_a_while() -> None:
    known = fleet(node("a", 0, holders=_ALL))
    known.pod_changed(pod("held", needs(80), is_ending=True), 0)
    assert finished(known.filter("new", needs(40), ["a"], LEAVING_SECONDS - 1)).soon == "a"
    assert finished(known.filter("new", needs(40), ["a"], LEAVING_SECONDS)).soon == "", (
        "it does not end, or its agent is away"
    )
    known.pod_gone("held", LEAVING_SECONDS + 1)
    assert finished(known.filter("new", needs(40), ["a"], LEAVING_SECONDS + 2)).soon == "a"
    assert finished(known.filter("new", needs(40), ["a"], 2 * LEAVING_SECONDS + 1)).soon == ""


def test_a_pod_that_ends_and_is_gone_is_room_soon_for_a_while_from_then_on() -> None:
    known = fleet(node("a", 0, holders=_ALL))
    known.pod_changed(pod("held", needs(80), is_ending=True), 0)
    known.pod_gone("held", LEAVING_SECONDS - 10)
    assert finished(known.filter("new", needs(40), ["a"], LEAVING_SECONDS + 1)).soon == "a"


def test_a_pod_that_is_gone_before_a_status_listed_it_leaves_room_soon() -> None:
    known = fleet(node("a", 80))
    bind(known, "bound", needs(60))
    known.pod_gone("bound", 1)
    assert finished(known.filter("new", needs(40), ["a"], 2)).soon == "a"


def test_what_another_pod_holds_before_its_bind_may_be_room_soon() -> None:
    known = fleet(node("a", 80))
    finished(known.filter("other", needs(60), ["a"], 0))
    assert finished(known.filter("new", needs(40), ["a"], 1)).soon == "a"
