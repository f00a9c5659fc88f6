"""What claims ask for and drivers offer, obstacle by obstacle: each field of what is said; and which nodes a pod matches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Meta, Node, Pod, PodClaim, Taint, Toleration
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import CLASSES, TEMPLATES, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass, Event, Request, ResourceClaim, Slice, SliceDevice
from kubectl_nodedevice.why.links import placement, pod_claims

from tests.unit.cli.why.clusters import DRIVER, base, pod_with

_PORT: Final = "port.example.com"
_OTHER: Final = DeviceClass("other.example.com", "", "other.example.com")


def of_pod(facts: Facts) -> list[Obstacle]:
    assert facts.pod is not None
    return list(pod_claims.obstacles(facts, facts.pod))


def of_node(facts: Facts, name: str = "node-a") -> list[Obstacle]:
    node = facts.node(name)
    assert node is not None
    assert facts.pod is not None
    return list(pod_claims.on_node(facts, facts.pod, node))


def claiming(facts: Facts, *requests: Request, **more: Any) -> Facts:
    """The claim of the pod, beside one of the same name elsewhere."""
    claim = ResourceClaim(Meta("train-port", "team"), requests, **more)
    return replace(facts, claims=(claim, ResourceClaim(Meta("train-port", "other"))))


def unread(facts: Facts, kind: str) -> Facts:
    return replace(facts, unread=(Unread(kind, "no"),))


def test_a_claim_that_is_not_made() -> None:
    facts = pod_with(base(), claims=(PodClaim("port", "", "t"),))
    assert of_pod(facts) == [Obstacle("ClaimMissing", fields={"claim": "The ResourceClaimTemplate t"})]
    quiet = Obstacle("ClaimNotMade", fields={"claim": "port", "words": ""})
    assert of_pod(unread(facts, TEMPLATES)) == [quiet]
    there = replace(facts, templates=frozenset({"t"}))
    assert of_pod(there) == [quiet]
    assert of_pod(pod_with(facts, claims=(PodClaim("port"),))) == [quiet]
    events = [Event(reason="FailedResourceClaimCreation", message=each) for each in ("a", "b", "late")]
    said = replace(there, events=(*events, Event(reason="Other", message="no")))
    assert of_pod(said) == [Obstacle("ClaimNotMade", fields={"claim": "port", "words": ": late"})]
    # of a pod that does not exist none is made
    assert said.pod is not None
    assert of_pod(pod_with(said, meta=replace(said.pod.meta, uid=""))) == []


@pytest.mark.parametrize(("asked", "hint"), [("prot.example.com", f"; did you mean {_PORT}?"), ("x", ".")])
def test_a_class_that_is_missing(asked: str, hint: str) -> None:
    # of a list each class has to be there
    facts = claiming(base(), Request((_PORT,)), Request((_PORT, asked)))
    fields = {"device_class": asked, "hint": hint, "claim": "The claim train-port"}
    expected = Obstacle("DeviceClassMissing", fields=fields)
    assert of_pod(facts) == [expected]
    assert of_pod(claiming(base(), Request((asked, asked)))) == [expected, expected]
    assert of_node(facts) == []
    assert of_node(claiming(facts, Request((asked,)))) == []
    assert of_pod(unread(facts, CLASSES)) == []
    assert of_pod(claiming(facts, Request((asked,)), is_allocated=True)) == []
    nothing = {"device_class": "", "hint": ".", "claim": "The claim train-port"}
    assert of_pod(claiming(facts, Request(()))) == [Obstacle("DeviceClassMissing", fields=nothing)]


def _too_few(number: int, has: int, resource: str = f"DeviceClass {_PORT}") -> Obstacle:
    fields = {"count": str(number), "resource_options": ""}
    return Obstacle("TooFewTogether", "node-a", resource, f"it has {has}", "", fields)


def test_a_node_that_offers_too_few() -> None:
    assert of_node(claiming(base(), Request((_PORT,), 4))) == []
    assert of_node(claiming(base(), Request((_PORT,), 3), Request((_PORT,), 2))) == [_too_few(5, 4)]
    # a choice, all that there are, and access for administration take a number that is not known
    free = (Request((_PORT, _OTHER.name), 9), Request((_PORT,), 0), Request((_PORT,), 9, is_admin=True))
    assert of_node(claiming(base(), *free)) == []
    nothing = of_node(claiming(base(), Request((_PORT,), 3)), "node-c")
    assert nothing == [replace(_too_few(3, 0), node="node-c")]


@pytest.mark.parametrize("is_tolerant", [False, True])
def test_taints_of_devices(is_tolerant: bool) -> None:
    taints = (Taint("k", "v", "NoSchedule"), Taint("l", "", "NoExecute"), Taint("soft", "", "PreferNoSchedule"))
    offered = tuple(SliceDevice(f"port-{at}", taints if at else taints[2:]) for at in range(3))
    facts = replace(base(), slices=(Slice(DRIVER, "node-a", 1, "node-a", offered),))
    facts = claiming(facts, Request((_PORT,)), Request((_PORT,), is_tolerant=is_tolerant))
    fields = {"device": "port-1", "device_options": "--device all", "resource_options": ""}
    detail = "port-1, port-2 (k:NoSchedule, l:NoExecute)"
    expected = Obstacle("DevicesTainted", "node-a", f"DeviceClass {_PORT}", detail, "", fields)
    assert of_node(facts) == ([] if is_tolerant else [expected])


def _of_placement(pod: Pod, node: Node) -> list[tuple[str, str, Mapping[str, str]]]:
    found = list(placement.obstacles(pod, node))
    assert {each.node for each in found} <= {"node-a"}
    return [(each.code, each.detail, each.fields) for each in found]


def test_what_keeps_a_pod_off_a_node() -> None:
    taints = (
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
        Taint("node.kubernetes.io/not-ready", "", "NoExecute"),
        Taint("node.kubernetes.io/unreachable", "", "NoExecute"),
        Taint("team", "a", "NoSchedule"),
        Taint("other", "", "NoExecute"),
    )
    node = Node(Meta("node-a", labels={"zone": "z1", "rack": "r"}), True, taints)
    pod = Pod(Meta("p"), node_selector={"zone": "z2", "rack": "r", "arch": "x"})
    taint = "node.kubernetes.io/not-ready:NoExecute"
    assert _of_placement(pod, node) == [
        ("NodeSelector", "it lacks nodeSelector arch=x, zone=z2", {}),
        ("NodeCordoned", "", {}),
        ("NodeNotReady", taint, {"taint": taint}),
        ("NodeTaint", "team=a:NoSchedule", {"taint": "team:NoSchedule"}),
    ]
    tolerant = Pod(Meta("p"), tolerations=(Toleration("", "Exists"),))
    assert _of_placement(tolerant, node) == []
    assert not placement.is_cordoned_for(Pod(Meta("p")), Node(Meta("node-a")))
    by_key = Pod(Meta("p"), tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))
    assert not placement.is_cordoned_for(by_key, node)
