"""What of a Node a cleanup removes, and the plan that it prints."""

from dataclasses import replace

from nodedevice_operator.cli.cleanup_plan import (
    CleanupScope,
    Survey,
    Withdrawal,
    plan,
    staying,
    withdrawal,
    withdrawals,
)
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import ExtendedResource, NodeRecord, TaintAndLabels

US = frozenset({OURS})
KUBELET = frozenset({"kubelet"})


def node(marks: TaintAndLabels | None = None, **resources: ExtendedResource) -> NodeRecord:
    by_name = {f"example.com/{name}": each for name, each in resources.items()}
    return NodeRecord("node-a", "uid", 1, by_name, marks or TaintAndLabels())


def test_of_a_node_only_what_is_ours_is_removed() -> None:
    seen = node(
        TaintAndLabels(is_tainted=True, labels={"nodedevice.io/example.com.a.total": "1"}),
        ours=ExtendedResource(1, 1, US, US),
        shared=ExtendedResource(1, 1, US | KUBELET, KUBELET),
        copied=ExtendedResource(None, 1, frozenset(), US),
        theirs=ExtendedResource(1, 1, KUBELET, KUBELET),
    )
    capacity = ("example.com/copied", "example.com/ours", "example.com/shared")
    assert withdrawal(seen) == Withdrawal("node-a", capacity, True, ("nodedevice.io/example.com.a.total",))


def test_only_nodes_with_anything_of_ours_are_changed() -> None:
    theirs = node(theirs=ExtendedResource(1, 1, KUBELET, KUBELET))
    ours = [node(TaintAndLabels(is_tainted=True)), node(TaintAndLabels(labels={"nodedevice.io/a.total": "1"}))]
    assert [found for found, _ in withdrawals([theirs, *ours])] == ours


def test_reports_what_stays_because_another_has_it_too() -> None:
    before = withdrawal(node(a=ExtendedResource(1, 1, US | KUBELET, US), b=ExtendedResource(1, 1, US, US)))
    after = node(a=ExtendedResource(1, None, KUBELET, frozenset()), b=ExtendedResource(None, 1, frozenset(), KUBELET))
    assert staying(before, after) == {"example.com/a": "kubelet"}


SCOPE = CleanupScope("of-ours", "of-agents", "nodedevice-operator", ("nodedevice-agent",), False, True)
NOTHING = Survey((), 0, 3, (), (), 0, 0, (), False, ())
EVERYTHING = Survey(
    workloads=(("deployments", "nodedevice-operator"), ("daemonsets", "nodedevice-agent")),
    pods=5,
    nodes=9,
    marked=("a", "b", "c", "d", "e", "f", "g"),
    policies=("mutatingadmissionpolicies nodedevice-required-plugins",),
    pod_devices=12,
    node_devices=40,
    kept=("a.gpu",),
    has_leases_namespace=True,
    crds=(),
)


def test_the_plan_has_each_step_with_its_numbers() -> None:
    assert plan(SCOPE, EVERYTHING) == [
        "in namespace of-ours delete deployments nodedevice-operator, daemonsets nodedevice-agent, with 5 pods",
        "remove capacity, taint and labels of ours from 7 of 9 Nodes: a, b, c, d, e, 2 more",
        "delete mutatingadmissionpolicies nodedevice-required-plugins",
        "delete 12 PodDevices; pods keep running, with the devices they have",
        "delete 40 NodeDevices",
        "keep 1 NodeDevices, without status, for their cordons: a.gpu",
        "delete namespace of-agents",
        "keep the CRDs and every NodeDeviceConfig (--delete-crds deletes them)",
    ]


def test_what_stays_and_what_goes_depends_on_the_scope() -> None:
    lines = plan(replace(SCOPE, delete_leases_namespace=False), EVERYTHING)
    assert "delete the agents' Leases in namespace of-agents" in lines
    lines = plan(replace(SCOPE, delete_crds=True), replace(EVERYTHING, crds=("nodedevices.nodedevice.io",)))
    assert lines[-1] == "delete nodedevices.nodedevice.io, with every cordon and every NodeDeviceConfig"
    [line] = plan(replace(SCOPE, delete_crds=True), NOTHING)
    assert line == "no workload of ours is in namespace of-ours (--namespace names another)"
