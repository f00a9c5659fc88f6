"""Requests that only the commands make about many objects: the pods of the chart's workloads, and the NodeDevices that remain."""

from collections.abc import Awaitable
from typing import Final

import msgspec
from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.paths import PODS

from nodedevice_operator.kube.decode import decode_list
from nodedevice_operator.kube.requests import NODEDEVICES, Requests, at
from nodedevice_operator.objects.meta import ObjectMetadata, Schema
from nodedevice_operator.objects.unwatched import PodSchema

DEPLOYMENT: Final = "deployments"
DAEMON_SET: Final = "daemonsets"
POD: Final = "pods"
# of `helm test`: Helm keeps one that failed, so that its log can be read, and does not delete it at the uninstall
CHECK_POD: Final = "nodedevice-check"
# the Deployments of the second scheduler and of the extender alone, and the Leases that theirs elect by
SCHEDULERS: Final = ("nodedevice-scheduler", "nodedevice-extender")

LEASE: Final = "leases"
NAMESPACE: Final = "namespaces"
CRD: Final = "customresourcedefinitions"

_OURS: Final = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator,scheduler,extender)"

_FIELD_MANAGER: Final = "nodedevice-cleanup"


class _LeftoverSpec(Schema):
    cordoned_devices: list[msgspec.Raw] = []


class Leftover(Schema):
    metadata: ObjectMetadata
    spec: _LeftoverSpec = msgspec.field(default_factory=_LeftoverSpec)

    @property
    def is_cordoned(self) -> bool:
        return bool(self.spec.cordoned_devices)


class LeftoversApi(Requests):
    """A NodeDevice with an administrator's cordon can be kept without its status."""

    async def pods(self, namespace: str) -> dict[str, str]:
        """The node of each remaining pod of theirs, by its name."""
        data = await self._client.request("GET", *at(PODS, namespace=namespace), query={"labelSelector": _OURS})
        return {pod.metadata.name: pod.spec.node_name for pod in decode_list(POD, data, PodSchema).items}

    async def node_devices(self) -> list[Leftover]:
        """All NodeDevices. Raises NotFound if the CRD is not installed."""
        pages = self._pages(*at(NODEDEVICES), Leftover)
        return [left async for page in pages for left in page]

    async def delete_node_device(self, left: Leftover) -> None:
        await existed(self._delete(*at(NODEDEVICES, left.metadata.name), uid=left.metadata.uid))

    async def clear_status(self, left: Leftover) -> None:
        """Removes its status with a merge patch: an empty apply would leave a null that the API rejects."""
        await self._merge(*at(NODEDEVICES, left.metadata.name, subresource="status"), {"status": None}, _FIELD_MANAGER)


async def existed(request: Awaitable[object]) -> bool:
    """Send the request; return whether its object existed."""
    try:
        await request
    except NotFound:
        return False
    return True
