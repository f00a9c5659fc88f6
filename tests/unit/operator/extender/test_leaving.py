"""Room that comes without an event in kube-scheduler's watches: by pods that end, and by pods that may go elsewhere."""

from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.terminating_pods import LEAVING_SECONDS
from nodedevice_operator.objects.node_parts import PodHolding

from tests.fakes.steps import finished
from tests.unit.operator.extender.fleets import bind, fleet, needs, node, pod

_ALL = {"held": (PodHolding(0, 80),)}


def soon(known: Fleet, now: float, count: int = 40, nodes: str = "a") -> str:
    """Where a pod that asks for so much has room soon."""
    return finished(known.filter("new", needs(count), nodes, now)).soon


def test_parts_of_a_pod_that_is_gone_are_room_soon_until_a_status_shows_it() -> None:
    known = fleet(node("a", 0, holders=_ALL), node("b", 0, holders={"other": (PodHolding(0, 80),)}))
    known.pod_changed(pod("held", needs(80)), 0)
    assert soon(known, 1, nodes="ab") == ""
    known.pod_gone("held", 1)
    assert soon(known, 2, nodes="ab") == "a"
    assert soon(known, 2, nodes="b") == "", "not a node that was not asked about"
    assert soon(known, 2, 0, "ab") == "", "it fits already"
    assert soon(known, 2, 81, "ab") == "", "more than there will be"
    known.node_changed(node("a", 30, holders={}), 3)
    assert soon(known, 4, nodes="ab") == "", "the status shows all that there will be"


def test_a_pod_that_ends_is_room_soon_for_a_while() -> None:
    known = fleet(node("a", 0, holders=_ALL))
    known.pod_changed(pod("held", needs(80), is_ending=True), 0)
    assert soon(known, LEAVING_SECONDS - 1) == "a"
    assert soon(known, LEAVING_SECONDS) == "", "it does not end, or its agent is away"
    known.pod_gone("held", LEAVING_SECONDS + 1)
    assert soon(known, LEAVING_SECONDS + 2) == "a"
    assert soon(known, 2 * LEAVING_SECONDS + 1) == ""


def test_a_pod_that_ends_and_is_gone_is_room_soon_for_a_while_from_then_on() -> None:
    known = fleet(node("a", 0, holders=_ALL))
    known.pod_changed(pod("held", needs(80), is_ending=True), 0)
    known.pod_gone("held", LEAVING_SECONDS - 10)
    assert soon(known, LEAVING_SECONDS + 1) == "a"


def test_a_pod_that_is_gone_before_a_status_listed_it_leaves_room_soon() -> None:
    known = fleet(node("a", 80))
    bind(known, "bound", needs(60))
    known.pod_gone("bound", 1)
    assert soon(known, 2) == "a"


def test_what_another_pod_holds_before_its_bind_may_be_room_soon() -> None:
    known = fleet(node("a", 80))
    finished(known.filter("other", needs(60), ["a"], 0))
    assert soon(known, 1) == "a"
