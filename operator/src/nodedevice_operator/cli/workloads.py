"""The chart's own workloads, and the pod of its test: ended before what they wrote is taken back; how many agents there should be.

They are found by the names and labels that the chart gives them.
"""

from typing import Final
from urllib.parse import quote

from nodedevice_operator.errors import NotFound
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import ObjectMetadata, Schema

DEPLOYMENT: Final = "deployments"
DAEMON_SET: Final = "daemonsets"
POD: Final = "pods"
# of `helm test`: Helm lets one that failed stay, for whoever wants to know why, and forgets it at the uninstall
CHECK_POD: Final = "nodedevice-check"

_APPS: Final = "/apis/apps/v1/namespaces"
_NAMESPACES: Final = {DEPLOYMENT: _APPS, DAEMON_SET: _APPS, POD: "/api/v1/namespaces"}
_OURS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator)"


class _DaemonSetStatus(Schema):
    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(Schema):
    """How many agents there should be, and how many say that they are ready."""

    status: _DaemonSetStatus


class _PodSpec(Schema):
    node_name: str = ""


class _Pod(Schema):
    metadata: ObjectMetadata
    spec: _PodSpec


class _PodList(Schema):
    items: list[_Pod] = []


class Workloads:
    """Requests about them, in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = quote(namespace, safe="")

    async def delete(self, kind: str, name: str) -> bool:
        """Have it deleted; its pods go after it. kind: of those above. Whether it was there."""
        path = f"{_NAMESPACES[kind]}/{self._namespace}/{kind}/{quote(name)}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            await self._client.request("DELETE", kind, path, body=body)
        except NotFound:
            return False
        return True

    async def pods(self) -> dict[str, str]:
        """The node of each pod of theirs that is still there, by its name."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        data = await self._client.request("GET", "pods", path, query={"labelSelector": _OURS})
        return {pod.metadata.name: pod.spec.node_name for pod in understood("GET", "pods", data, _PodList).items}

    async def daemon_set(self, name: str) -> DaemonSet | None:
        """None where there is none of that name."""
        try:
            data = await self._client.request(
                "GET", DAEMON_SET, f"{_APPS}/{self._namespace}/{DAEMON_SET}/{quote(name)}"
            )
        except NotFound:
            return None
        return understood("GET", DAEMON_SET, data, DaemonSet)
