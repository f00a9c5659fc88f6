"""Objects of Kubernetes' own kinds as they are read: each field from its place."""

from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import (
    Condition,
    Container,
    Meta,
    Pod,
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
_READY: Final = {"Ready": Condition("Ready", "True", "r", "m", "t")}


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
