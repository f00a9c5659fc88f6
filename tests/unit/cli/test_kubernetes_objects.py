"""Objects of Kubernetes' own kinds as they are read: each field from its place."""

from kubectl_nodedevice.cluster import (
    Container,
    Pod,
)
from kubectl_nodedevice.records import record_of


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
