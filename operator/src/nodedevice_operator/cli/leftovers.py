"""Objects that agents and operators leave behind, as far as the operator itself never deletes them: NodeDevices and Leases,
and the namespace that is there for the agents' Leases alone.

A NodeDevice with an administrator's cordon can be kept without what programs said of it.
"""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import NotFound
from nodedevice_operator.kube.client import MERGE_PATCH, Client
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import ListMetadata, ObjectMetadata, Schema

_NODE_DEVICES: Final = f"/apis/{names.API_VERSION}/{names.NODE_DEVICES}"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
_NAMESPACES: Final = "/api/v1/namespaces"
_PAGE: Final = 250
_FIELD_MANAGER: Final = "nodedevice-cleanup"


class _Spec(Schema):
    node_name: str = ""
    resource_name: str = ""
    cordoned_devices: list[Any] = []


class Left(Schema):
    """A NodeDevice, by whose it is."""

    metadata: ObjectMetadata
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def is_cordoned(self) -> bool:
        return bool(self.spec.cordoned_devices)


class _LeftList(Schema):
    metadata: ListMetadata
    items: list[Left] = []


class Leavings:
    """Requests about them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def node_devices(self) -> AsyncIterator[list[Left]]:
        """All NodeDevices, page by page."""
        query: dict[str, str | int] = {"limit": _PAGE}
        while True:
            data = await self._client.request("GET", names.NODE_DEVICES, _NODE_DEVICES, query=query)
            page = understood("GET", names.NODE_DEVICES, data, _LeftList)
            yield page.items
            if not page.metadata.continue_:
                return
            query = {"limit": _PAGE, "continue": page.metadata.continue_}

    async def delete_node_device(self, left: Left) -> None:
        """Delete that very object; gone already is fine."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": left.metadata.uid}}
        try:
            await self._client.request("DELETE", names.NODE_DEVICES, _path(left), body=body)
        except NotFound:
            return

    async def clear_status(self, left: Left) -> None:
        """Take away what agent and operator said of it. By a merge: an apply of nothing would leave a null that the API refuses."""
        query = {"fieldManager": _FIELD_MANAGER}
        what, path = f"{names.NODE_DEVICES}/status", f"{_path(left)}/status"
        await self._client.request("PATCH", what, path, query=query, body={"status": None}, content_type=MERGE_PATCH)

    async def delete_agent_leases(self, namespace: str) -> None:
        """Delete every Lease of that namespace: nothing but the agents' is in it."""
        try:
            await self._client.request("DELETE", "leases", f"{_LEASES}/{quote(namespace, safe='')}/leases")
        except NotFound:
            return

    async def delete_namespace(self, name: str) -> bool:
        """Have it deleted, and with it all that is in it; whether it was there."""
        try:
            await self._client.request("DELETE", "namespaces", f"{_NAMESPACES}/{quote(name, safe='')}")
        except NotFound:
            return False
        return True

    async def has_namespace(self, name: str) -> bool:
        """Whether it is there, if only to be deleted."""
        try:
            await self._client.request("GET", "namespaces", f"{_NAMESPACES}/{quote(name, safe='')}")
        except NotFound:
            return False
        return True

    async def delete_operator_lease(self, namespace: str) -> None:
        """Gone already is fine."""
        path = f"{_LEASES}/{quote(namespace, safe='')}/leases/{names.OPERATOR_LEASE}"
        try:
            await self._client.request("DELETE", "leases", path)
        except NotFound:
            return


def _path(left: Left) -> str:
    return f"{_NODE_DEVICES}/{quote(left.metadata.name, safe='')}"
