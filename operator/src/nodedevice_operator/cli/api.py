"""Requests that only the commands make: the chart's workloads, and the objects that remain when agents and operators are gone."""

from collections.abc import Awaitable
from typing import Final

import msgspec
from nodedevice_api import names
from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.paths import MERGE_PATCH, segment

from nodedevice_operator.kube.client import OWN, Client
from nodedevice_operator.kube.decode import decode_list
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.objects.meta import ObjectMetadata, Schema
from nodedevice_operator.objects.unwatched import PodSchema

DEPLOYMENT: Final = "deployments"
DAEMON_SET: Final = "daemonsets"
POD: Final = "pods"
# of `helm test`: Helm keeps one that failed, so that its log can be read, and does not delete it at the uninstall
CHECK_POD: Final = "nodedevice-check"
# the Deployments of the second scheduler and of the extender alone, and the Leases that theirs elect by
SCHEDULERS: Final = ("nodedevice-scheduler", "nodedevice-extender")

_APPS: Final = "/apis/apps/v1/namespaces"
_WORKLOADS: Final = {DEPLOYMENT: _APPS, DAEMON_SET: _APPS, POD: "/api/v1/namespaces"}
_OURS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator,scheduler,extender)"

_NODE_DEVICES: Final = f"{OWN}/{names.NODE_DEVICES}"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
_NAMESPACES: Final = "/api/v1/namespaces"
_FIELD_MANAGER: Final = "nodedevice-cleanup"


class _LeftoverSpec(Schema):
    cordoned_devices: list[msgspec.Raw] = []


class Leftover(Schema):
    """A NodeDevice that remains, as far as a cleanup needs it."""

    metadata: ObjectMetadata
    spec: _LeftoverSpec = msgspec.field(default_factory=_LeftoverSpec)

    @property
    def is_cordoned(self) -> bool:
        """Whether an administrator has cordoned devices in it."""
        return bool(self.spec.cordoned_devices)


class WorkloadsApi(Requests):
    """Requests about the chart's workloads, in one namespace. They are found by the names and labels that the chart gives them."""

    def __init__(self, client: Client, namespace: str) -> None:
        super().__init__(client)
        self._namespace = segment(namespace)

    async def delete(self, kind: str, name: str) -> bool:
        """Delete it; its pods follow. kind: one of those above. Return whether it existed."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        return await existed(self._client.request("DELETE", kind, self._path(kind, name), body=body))

    async def exists(self, kind: str, name: str) -> bool:
        """Whether it does. kind: one of those above."""
        return await existed(self._client.request("GET", kind, self._path(kind, name)))

    def _path(self, kind: str, name: str) -> str:
        return f"{_WORKLOADS[kind]}/{self._namespace}/{kind}/{segment(name)}"

    async def pods(self) -> dict[str, str]:
        """The node of each remaining pod of theirs, by its name."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        data = await self._client.request("GET", "pods", path, query={"labelSelector": _OURS})
        return {pod.metadata.name: pod.spec.node_name for pod in decode_list("pods", data, PodSchema).items}


class LeftoversApi(Requests):
    """Requests about objects that the operator itself never deletes: NodeDevices, Leases, and the namespace of the agents' Leases.

    A NodeDevice with an administrator's cordon can be kept without its status.
    """

    async def node_devices(self) -> list[Leftover]:
        """All NodeDevices. Raises NotFound where there is no such kind."""
        pages = self._pages(names.NODE_DEVICES, _NODE_DEVICES, Leftover)
        return [left async for page in pages for left in page]

    async def delete_node_device(self, left: Leftover) -> None:
        """Delete the object of that uid, if it still exists."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": left.metadata.uid}}
        await existed(self._client.request("DELETE", names.NODE_DEVICES, _node_device_path(left), body=body))

    async def clear_status(self, left: Leftover) -> None:
        """Remove its status. By a merge patch: an empty apply would leave a null that the API rejects."""
        query = {"fieldManager": _FIELD_MANAGER}
        what, path = f"{names.NODE_DEVICES}/status", f"{_node_device_path(left)}/status"
        await self._client.request("PATCH", what, path, query=query, body={"status": None}, content_type=MERGE_PATCH)

    async def delete_agent_leases(self, namespace: str) -> None:
        """Delete every Lease of that namespace, which holds nothing but the agents'."""
        await existed(self._client.request("DELETE", "leases", f"{_LEASES}/{segment(namespace)}/leases"))

    async def delete_leader_lease(self, namespace: str, name: str) -> None:
        """Delete the Lease by which several elect one, if it still exists."""
        path = f"{_LEASES}/{segment(namespace)}/leases/{segment(name)}"
        await existed(self._client.request("DELETE", "leases", path))

    async def has_crd(self, name: str) -> bool:
        """Whether a CustomResourceDefinition of that name exists, also while it is being deleted."""
        return await existed(self._client.request("GET", "customresourcedefinitions", _crd_path(name)))

    async def delete_crd(self, name: str) -> bool:
        """Delete it, and with it every object of its kind; return whether it existed."""
        return await existed(self._client.request("DELETE", "customresourcedefinitions", _crd_path(name)))

    async def delete_namespace(self, name: str) -> bool:
        """Delete it with everything in it; return whether it existed."""
        return await existed(self._client.request("DELETE", "namespaces", f"{_NAMESPACES}/{segment(name)}"))

    async def has_namespace(self, name: str) -> bool:
        """Whether it exists, also while it is being deleted."""
        return await existed(self._client.request("GET", "namespaces", f"{_NAMESPACES}/{segment(name)}"))


def _crd_path(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{segment(name)}"


def _node_device_path(left: Leftover) -> str:
    return f"{_NODE_DEVICES}/{segment(left.metadata.name)}"


async def existed(request: Awaitable[bytes]) -> bool:
    """Send the request; return whether its object existed."""
    try:
        await request
    except NotFound:
        return False
    return True
