"""In which namespaces the release is: by what an administrator wrote, before what a tenant may have."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubectl_nodedevice import release_namespaces
from kubectl_nodedevice.cluster import Release
from nodedevice_kube.api_errors import Forbidden, NotFound

DEFAULT = Release("nodedevice-system", "nodedevice-agents")
NONE = NotFound("GET", "x", "none")


def binding(namespace: str, leases: str = "") -> dict[str, Any]:
    annotations = {"nodedevice.io/leases-namespace": leases} if leases else {}
    subjects = [{"kind": "ServiceAccount", "name": "nodedevice-agent", "namespace": namespace}]
    return {"metadata": {"annotations": annotations}, "subjects": subjects}


def daemon_set(namespace: str, leases: str = "", account: str = "nodedevice-agent") -> dict[str, Any]:
    env = [{"name": "NODEDEVICE_LEASES_NAMESPACE", "value": leases}] if leases else []
    spec = {"serviceAccountName": account, "containers": [{"name": "agent", "env": env}]}
    return {"metadata": {"namespace": namespace}, "spec": {"template": {"spec": spec}}}


class Api:
    def __init__(self, found: Any, sets: Any) -> None:
        self._found, self._sets = found, sets

    def get(self, *_: Any) -> Any:
        return _given(self._found)

    def objects(self, *_: Any) -> Iterator[Any]:
        yield from _given(self._sets)


def _given(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found


@pytest.mark.parametrize(
    ("found", "sets", "expected"),
    [
        (binding("gpus", "gpu-agents"), [daemon_set("tenant")], Release("gpus", "gpu-agents")),
        (binding("gpus"), [], Release("gpus", "nodedevice-agents")),
        (NONE, [daemon_set("gpus", "gpu-agents")], Release("gpus", "gpu-agents")),
        (Forbidden("GET", "x", "no"), [daemon_set("gpus"), daemon_set("tenant", account="other")], Release("gpus")),
        # of two neither is believed, but where one is as the chart has it
        (NONE, [daemon_set("gpus"), daemon_set("tenant")], DEFAULT),
        (NONE, [daemon_set("tenant"), daemon_set("nodedevice-system", "x")], Release("nodedevice-system", "x")),
        (NONE, Forbidden("GET", "x", "no"), DEFAULT),
        ({}, [], DEFAULT),
        ({"subjects": [{"name": "nodedevice-agent"}, 3]}, [{}, 3], DEFAULT),
    ],
)
def test_where_the_release_is(found: Any, sets: Any, expected: Release) -> None:
    api: Any = Api(found, sets)
    assert release_namespaces.find(api) == expected
