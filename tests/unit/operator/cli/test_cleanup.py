"""What of a Node a cleanup removes."""

from nodedevice_operator.cli.cleanup import Withdrawal, staying, withdrawal
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import ExtendedResource, NodeRecord, TaintAndLabels

US = frozenset({OURS})
KUBELET = frozenset({"kubelet"})


def node(marks: TaintAndLabels | None = None, **resources: ExtendedResource) -> NodeRecord:
    return NodeRecord(
        "node-a", "uid", 1, {f"example.com/{name}": each for name, each in resources.items()}, marks or TaintAndLabels()
    )


def test_only_what_is_ours() -> None:
    seen = node(
        TaintAndLabels(is_tainted=True, labels={"nodedevice.io/example.com.a.total": "1"}),
        ours=ExtendedResource(1, 1, US, US),
        shared=ExtendedResource(1, 1, US | KUBELET, KUBELET),
        copied=ExtendedResource(None, 1, frozenset(), US),
        theirs=ExtendedResource(1, 1, KUBELET, KUBELET),
    )
    capacity = ("example.com/copied", "example.com/ours", "example.com/shared")
    assert withdrawal(seen) == Withdrawal("node-a", capacity, True, ("nodedevice.io/example.com.a.total",))


def test_a_node_without_anything_of_ours_is_not_changed() -> None:
    assert withdrawal(node(theirs=ExtendedResource(1, 1, KUBELET, KUBELET))).is_nothing
    assert not withdrawal(node(TaintAndLabels(is_tainted=True))).is_nothing
    assert not withdrawal(node(TaintAndLabels(labels={"nodedevice.io/a.total": "1"}))).is_nothing


def test_reports_what_stays_because_another_has_it_too() -> None:
    before = withdrawal(node(a=ExtendedResource(1, 1, US | KUBELET, US), b=ExtendedResource(1, 1, US, US)))
    after = node(a=ExtendedResource(1, None, KUBELET, frozenset()), b=ExtendedResource(None, 1, frozenset(), KUBELET))
    assert staying(before, after) == {"example.com/a": "kubelet"}
