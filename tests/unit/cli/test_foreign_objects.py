"""Kinds of Kubernetes, and a NodeDeviceConfig: each field is read from its place. NodeDevices and PodDevices: test_objects.py."""

from typing import Any, Final

import pytest
from kubectl_nodedevice import objects
from kubectl_nodedevice.cluster import (
    Condition,
    Config,
    Container,
    HeldParts,
    Lease,
    Meta,
    Node,
    PartRules,
    Pod,
    PodClaim,
    Taint,
    Toleration,
)

_OWNERS: Final = [{"kind": "Node", "name": "no"}, {"kind": "Job", "name": "train", "controller": True}]
_METADATA: Final = {
    "name": "n",
    "namespace": "ns",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "made",
    "deletionTimestamp": "leaves",
    "ownerReferences": _OWNERS,
    "labels": {"l": "1"},
    "annotations": {"a": "2"},
}
_META: Final = Meta("n", "ns", "u", "7", 3, "made", "leaves", "Job/train", {"l": "1"}, {"a": "2"})
_CONDITIONS: Final = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "r",
        "message": "m",
        "lastTransitionTime": "since",
        "observedGeneration": 2,
    },
    {"type": "Other"},
]
_READ_CONDITIONS: Final = {"Ready": Condition("Ready", "True", "r", "m", "since", 2), "Other": Condition("Other")}


def test_a_node() -> None:
    taint = {"key": "k", "value": "v", "effect": "e", "timeAdded": "t"}
    status = {"capacity": {"c": "1"}, "allocatable": {"a": "2"}, "conditions": _CONDITIONS}
    obj = {"metadata": _METADATA, "spec": {"unschedulable": True, "taints": [taint]}, "status": status}
    read = objects.node_of(obj)
    assert read == Node(_META, True, (Taint("k", "v", "e", "t"),), {"c": "1"}, {"a": "2"}, _READ_CONDITIONS)
    assert read.is_ready
    assert objects.node_of({}) == Node(Meta())


def test_a_pod() -> None:
    toleration = {"key": "k", "operator": "Exists", "value": "v", "effect": "e"}
    spec = {
        "nodeName": "node",
        "schedulerName": "s",
        "priority": 9,
        "runtimeClassName": "rc",
        "schedulingGates": [{"name": "g1"}, {"name": "g2"}],
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "c"}],
        "nodeSelector": {"zone": "z"},
        "affinity": {"nodeAffinity": {"x": 1}},
        "tolerations": [toleration, {"key": "k"}],
    }
    status = {
        "phase": "Failed",
        "reason": "r",
        "message": "m",
        "nominatedNodeName": "other",
        "conditions": _CONDITIONS,
    }
    read = objects.pod_of({"metadata": _METADATA, "spec": spec, "status": status})
    assert read == Pod(
        _META,
        "node",
        "Failed",
        "s",
        9,
        "rc",
        ("g1", "g2"),
        (Container("main"),),
        (PodClaim("c"),),
        {"zone": "z"},
        {"nodeAffinity": {"x": 1}},
        (Toleration("k", "Exists", "v", "e"), Toleration("k", "Equal")),
        _READ_CONDITIONS,
        "r",
        "m",
        "other",
    )
    assert read.is_over
    assert objects.pod_of({}) == Pod(Meta())


_CONTAINER: Final = {
    "name": "c",
    "image": "i",
    "resources": {
        "limits": {"a": "1", "b": "2"},
        "requests": {"b": "1", "d": "3"},
        "claims": [{"name": "x"}, {"name": "y"}],
    },
    "restartPolicy": "Always",
}
_RESOURCES: Final = ("i", {"a": "1", "b": "1", "d": "3"}, ("x", "y"))
_LEFT: Final = {"terminated": {"reason": "of then", "message": "it said"}}


@pytest.mark.parametrize(
    ("state", "last", "expected"),
    [
        ({"waiting": {"reason": "r", "message": "m"}}, {}, ("waiting", "r", "m", "")),
        ({"waiting": {"reason": "r", "message": "m"}}, _LEFT, ("waiting", "r", "m", "it said")),
        ({"terminated": {"reason": "r", "message": "m"}}, _LEFT, ("terminated", "r", "m", "m")),
        ({"terminated": {"reason": "r"}}, _LEFT, ("terminated", "r", "", "it said")),
        ({"running": {"startedAt": "s"}}, {}, ("running", "", "", "")),
        ({}, {}, ("", "", "", "")),
    ],
)
def test_the_state_of_a_container(state: Any, last: Any, expected: tuple[str, ...]) -> None:
    statuses = [{"name": "other", "state": {"running": {}}}, {"name": "c", "state": state, "lastState": last}]
    pod = objects.pod_of({"spec": {"containers": [_CONTAINER]}, "status": {"containerStatuses": statuses}})
    # `restartPolicy` makes a sidecar of an init container alone
    assert pod.containers == (Container("c", *_RESOURCES, False, False, *expected),)


def test_the_state_of_an_init_container() -> None:
    states = {
        "initContainerStatuses": [{"name": "c", "state": {"waiting": {"reason": "own"}}}],
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "another's"}}}],
    }
    [found] = objects.pod_of({"spec": {"initContainers": [_CONTAINER]}, "status": states}).containers
    assert found == Container("c", *_RESOURCES, True, True, "waiting", "own")


def test_claims_of_a_pod() -> None:
    claims = [
        {"name": "own", "resourceClaimName": "named"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "awaited", "resourceClaimTemplateName": "u"},
    ]
    statuses = [{"name": "made", "resourceClaimName": "of-t"}, {"name": "own", "resourceClaimName": "no"}]
    pod = objects.pod_of({"spec": {"resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}})
    assert pod.claims == (PodClaim("own", "named"), PodClaim("made", "of-t", "t"), PodClaim("awaited", "", "u"))


def test_a_config() -> None:
    spec = {"priority": 5, "nodeSelector": {"matchLabels": {}}, "plugins": {"generic": {}}}
    status = {"nodes": {"selected": 3, "accepted": 2, "refused": 1}, "conditions": _CONDITIONS}
    read = objects.config_of({"metadata": _METADATA, "spec": spec, "status": status})
    assert read == Config(_META, 5, {"matchLabels": {}}, {"generic": {}}, 3, 2, 1, _READ_CONDITIONS)
    assert objects.config_of({}) == Config(Meta())


def test_a_lease() -> None:
    spec = {"holderIdentity": "h", "renewTime": "r", "leaseDurationSeconds": 40}
    assert objects.lease_of({"metadata": _METADATA, "spec": spec}) == Lease(_META, "h", "r", 40)
    assert objects.lease_of({}) == Lease(Meta())


def test_what_a_node_device_lacks() -> None:
    """A total of none is not 0; what is no number is none; parts are joined by a dash where nothing is said."""
    parts = {"status": {"allocations": [{"parts": [{"parent": "p", "parts": 1, "numbers": "0"}]}]}}
    assert objects.node_device_of(parts).allocations[0].parts == (HeldParts("p", 1, "0", "-"),)
    assert objects.node_device_of({"status": {"total": "4"}}).total is None
    assert objects.node_device_of({"status": {"parts": {"smPercent": "4"}}}).parts == PartRules()
    bare = objects.node_device_of({"status": {"devices": [{"id": "d"}], "allocations": [{"name": "p"}]}})
    assert (bare.parts, bare.devices[0].parts, bare.allocations[0].claim) == (None, None, None)


def test_metadata_of_kinds_of_ours() -> None:
    assert objects.node_device_of({"metadata": _METADATA}).meta == _META
    assert objects.pod_device_of({"metadata": _METADATA}).meta == _META
