"""Objects of Kubernetes' own kinds as they are read: each field from its place."""

from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import (
    Condition,
    Container,
    Lease,
    Meta,
    Node,
    Pod,
    PodClaim,
    Taint,
    Toleration,
)
from kubectl_nodedevice.records import record_of

_META: Final[dict[str, Any]] = {
    "name": "n",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "c",
    "deletionTimestamp": "d",
    "ownerReferences": [
        {"kind": "Other", "name": "o"},
        {"kind": "ReplicaSet", "name": "rs", "controller": True},
        {"kind": "Third", "name": "t", "controller": True},
    ],
    "labels": {"l": "1"},
}
_READ: Final = Meta("n", "ns", "u", "7", "c", "d", "ReplicaSet/rs", {"l": "1"})
_CONDITIONS: Final[list[dict[str, Any]]] = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "r",
        "message": "m",
        "lastTransitionTime": "t",
        "observedGeneration": 5,
    }
]
_READY: Final = {"Ready": Condition("Ready", "True", "r", "m", "t", 5)}


def test_metadata() -> None:
    assert record_of(Meta, _META) == _READ
    assert record_of(Meta, {}) == Meta()
    assert record_of(Meta, {"ownerReferences": [{"kind": "K", "name": "o", "controller": False}]}).owner == ""


def test_a_node() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "then"}
    read = record_of(
        Node,
        {
            "metadata": _META,
            "spec": {"unschedulable": True, "taints": [taint]},
            "status": {"allocatable": {"x": "2"}, "conditions": _CONDITIONS},
        },
    )
    assert read == Node(_READ, True, (Taint("k", "v", "NoExecute", "then"),), {"x": "2"}, _READY)
    assert read.is_ready
    assert not record_of(Node, {}).is_ready
    assert not record_of(Node, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}).is_ready


def test_a_pod() -> None:
    read = record_of(
        Pod,
        {
            "metadata": _META,
            "spec": {
                "nodeName": "node",
                "schedulerName": "s",
                "serviceAccountName": "sa",
                "schedulingGates": [{"name": "g"}],
                "containers": [{"name": "c"}],
                "resourceClaims": [
                    {"name": "own", "resourceClaimName": "claim"},
                    {"name": "made", "resourceClaimTemplateName": "template"},
                    {"name": "later", "resourceClaimTemplateName": "template"},
                ],
                "nodeSelector": {"zone": "z"},
                "affinity": {"nodeAffinity": {}},
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {"value": "v"}],
            },
            "status": {
                "phase": "Pending",
                "conditions": _CONDITIONS,
                "reason": "r",
                "message": "m",
                "nominatedNodeName": "nominated",
                "resourceClaimStatuses": [
                    {"name": "made", "resourceClaimName": "made-x"},
                    {"name": "own", "resourceClaimName": "unused"},
                ],
            },
        },
    )
    assert read == Pod(
        _READ,
        "node",
        "Pending",
        "sa",
        "s",
        ("g",),
        (Container("c"),),
        (PodClaim("own", "claim"), PodClaim("made", "made-x", "template"), PodClaim("later", "", "template")),
        {"zone": "z"},
        {"nodeAffinity": {}},
        (Toleration("k", "Exists", "", "NoSchedule"), Toleration("", "Equal", "v", "")),
        _READY,
        "r",
        "m",
        "nominated",
    )


def test_containers() -> None:
    resources = {
        "limits": {"x": "2", "y": "3"},
        "requests": {"x": "1"},
        "claims": [{"name": "a"}, {"name": "b", "request": "r"}],
    }
    waiting = {"name": "main", "state": {"waiting": {"reason": "r", "message": "m"}}}
    waiting["lastState"] = {"terminated": {"message": "earlier"}}
    ended = {"name": "first", "state": {"terminated": {"reason": "Error", "message": "last"}}}
    ended["lastState"] = {"terminated": {"message": "earlier"}}
    read = record_of(
        Pod,
        {
            "spec": {
                "containers": [{"name": "main", "image": "i", "resources": resources}, {"name": "other"}],
                "initContainers": [
                    {"name": "first"},
                    {"name": "side", "restartPolicy": "Always"},
                    {"name": "second", "restartPolicy": "OnFailure"},
                ],
            },
            "status": {
                "containerStatuses": [waiting, {"name": "other", "state": {"running": {}}}],
                "initContainerStatuses": [ended],
            },
        },
    )
    assert read.containers == (
        Container("first", is_init=True, state="terminated", reason="Error", message="last", last_words="last"),
        Container("side", is_init=True, is_sidecar=True),
        Container("second", is_init=True),
        Container("main", "i", {"x": "1", "y": "3"}, ("a", "b"), False, False, "waiting", "r", "m", "earlier"),
        Container("other", state="running"),
    )


@pytest.mark.parametrize(("phase", "is_over"), [("Succeeded", True), ("Failed", True), ("Running", False), ("", False)])
def test_a_pod_that_has_ended(phase: str, is_over: bool) -> None:
    assert record_of(Pod, {"status": {"phase": phase}}).is_over is is_over


def test_a_lease() -> None:
    spec = {"holderIdentity": "h", "renewTime": "t", "leaseDurationSeconds": 15}
    assert record_of(Lease, {"metadata": _META, "spec": spec}) == Lease(_READ, "h", "t", 15)
