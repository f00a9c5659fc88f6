"""What claims ask for and drivers offer, obstacle by obstacle: each field of what is said; and which nodes a pod matches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Meta, Node, Pod, PodClaim, Taint, Toleration
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import CLAIMS, CLASSES, SLICES, TEMPLATES, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass, Event, Request, ResourceClaim, Slice, SliceDevice
from kubectl_nodedevice.why.links import offers, placement, pod_claims
from kubectl_nodedevice.why.links.devices import Wanted
from nodedevice_kube.planner import Need

from tests.unit.cli.why.clusters import DRIVER, GPU, NIC, base, pod_with

_PORT: Final = "port.example.com"
_CLASS: Final = DeviceClass(_PORT, NIC, DRIVER)
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


# -- claims of a pod ----------------------------------------------------------------------------------------------------------


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


def test_a_class_of_which_nothing_is_offered() -> None:
    facts = replace(claiming(base(), Request((_OTHER.name,))), classes=(_CLASS, _OTHER))
    fields = {"device_class": _OTHER.name, "hint": f", whose driver is {_OTHER.driver}.", "claim": ""}
    assert of_pod(facts) == [Obstacle("NothingOffered", fields=fields)]
    # on no node in particular
    assert of_node(facts) == []
    assert of_pod(unread(facts, SLICES)) == []
    assert of_pod(claiming(facts, Request((_OTHER.name, _PORT)))) == []
    anybodys = replace(facts, classes=(replace(_OTHER, driver=""),))
    assert of_pod(anybodys) == []
    without = replace(anybodys, slices=(Slice(DRIVER, "p", 1, "node-a"),))
    assert of_pod(without) == [Obstacle("NothingOffered", fields={**fields, "hint": "."})]


# -- on a node ----------------------------------------------------------------------------------------------------------------


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


def test_devices_that_others_have() -> None:
    def of_claim(name: str, pool: str, device: str, owner: str = "") -> ResourceClaim:
        return ResourceClaim(Meta(name, "team", owner=owner), (), True, ((DRIVER, pool, device),))

    facts = claiming(base(), Request((_PORT,), 3))
    taken = (of_claim("a", "node-a", "port-0", "Pod/p"), of_claim("b", "node-a", "port-2"))
    facts = replace(facts, claims=(*facts.claims, *taken, of_claim("c", "node-b", "port-1")))
    fields = {"device": "port-0", "device_options": "--device all", "resource_options": ""}
    detail = "port-0 by team/p, port-2 by claim team/b"
    assert of_node(facts) == [Obstacle("DevicesHeld", "node-a", f"DeviceClass {_PORT}", detail, "", fields)]
    assert of_node(unread(facts, CLAIMS)) == []


# -- placement ----------------------------------------------------------------------------------------------------------------


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


def test_the_words_of_an_affinity() -> None:
    def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
        return {"key": key, "operator": operator, "values": list(values)}

    terms = [
        {
            "matchExpressions": [expression("a", "In", "1", "2"), expression("b", "Exists")],
            "matchFields": [expression("metadata.name", "In", "x")],
        },
        {},
        {"matchExpressions": [expression("c", "Gt", "3")]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = Pod(Meta("p"), affinity={"nodeAffinity": required})
    words = "node affinity (a In 1, 2 and b Exists and metadata.name In x or nothing or c Gt 3)"
    assert placement.unmatched(pod, Node(Meta("node-a"))) == words
    assert placement.unmatched(pod, Node(Meta("node-a", labels={"c": "4"}))) == ""
    assert placement.unmatched(pod, Node(Meta("node-a", labels={"c": "3"}))) == words
    assert placement.unmatched(pod, Node(Meta("x", labels={"a": "2", "b": ""}))) == ""
    assert placement.unmatched(pod, Node(Meta("y", labels={"a": "2", "b": ""}))) == words
    assert placement.unmatched(pod, Node(Meta("x", labels={"a": "2"}))) == words


def test_each_claim_of_a_pod_counts() -> None:
    """Those behind one that is allocated, too."""
    facts = claiming(base(), Request((_PORT,), 5))
    done = ResourceClaim(Meta("done", "team"), is_allocated=True)
    facts = pod_with(
        replace(facts, claims=(*facts.claims, done)), claims=(PodClaim("a", "done"), PodClaim("b", "train-port"))
    )
    assert of_node(facts) == [_too_few(5, 4)]


@pytest.mark.parametrize("device", [SliceDevice("s", is_shared=True)])
def test_what_cannot_be_counted(device: SliceDevice) -> None:
    wanted = Wanted(NIC, (Need(9),))
    facts = base()
    assert offers.obstacles(facts, "node-a", _CLASS, wanted) == (_too_few(9, 4, NIC),)
    shared = replace(facts, slices=(*facts.slices, Slice(DRIVER, "more", 1, "node-a", (device,))))
    assert offers.obstacles(shared, "node-a", _CLASS, wanted) == ()
    beyond = replace(facts, slices=(*facts.slices, Slice(DRIVER, "more", 1, "", (SliceDevice("s"),))))
    assert offers.obstacles(beyond, "node-a", _CLASS, wanted) == ()
    assert offers.obstacles(unread(facts, SLICES), "node-a", _CLASS, wanted) == ()


def test_which_classes_give_out_a_resource() -> None:
    facts = replace(base(), classes=(_OTHER, _CLASS))
    assert offers.classes_for(facts, NIC) == (_CLASS,)
    assert offers.classes_for(facts, f"deviceclass.resource.kubernetes.io/{_OTHER.name}") == (_OTHER,)
    assert offers.classes_for(facts, GPU) == ()
