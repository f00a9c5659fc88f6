"""Requests about the policy and its binding: read, written and watched by name.

Specs are handed over as they are: what they mean is the core's. Rights are for this one name; only making it cannot be limited so.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from nodedevice_api import names

from nodedevice_operator.kube.client import APPLY, Client
from nodedevice_operator.kube.decode import understood
from nodedevice_operator.objects.meta import ListMetadata, ResourceList, Schema
from nodedevice_operator.requiredplugins.policy import API_VERSION, NAME, Spec, body

_ROOT: Final = f"/apis/{API_VERSION}"
_JSON_PATCH: Final = "application/json-patch+json"
# Shorter than the 5 minutes after which some load balancers drop a silent connection.
_WATCH_SECONDS: Final = 240


class PolicyObjects:
    """The two objects. `kind` is the plural everywhere."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def served(self) -> frozenset[str]:
        """Plurals that the API server serves in the group and version of these objects. Raises NotFound where it knows neither."""
        data = await self._client.request("GET", "apis", _ROOT)
        return frozenset(found.name for found in understood("GET", "apis", data, ResourceList).resources)

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        """Spec of the object, None where it is not there, and the version from which a watch goes on."""
        data = await self._client.request("GET", kind, f"{_ROOT}/{kind}", query={"fieldSelector": _BY_NAME})
        page = understood("GET", kind, data, _List)
        return (page.items[0].spec if page.items else None), page.metadata.resource_version

    async def apply(self, kind: str, spec: Spec) -> Spec:
        """Make or change the object by server-side apply; its spec as it is then. What others added to its lists stays."""
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER, "force": "true"}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=body(kind, spec), content_type=APPLY
        )
        return understood("PATCH", kind, data, _Object).spec

    async def replace(self, kind: str, spec: Spec) -> Spec:
        """Make the spec that one and nothing else; the spec as it is then. Raises NotFound."""
        patch = [{"op": "replace", "path": "/spec", "value": dict(spec)}]
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=patch, content_type=_JSON_PATCH
        )
        return understood("PATCH", kind, data, _Object).spec

    async def delete(self, kind: str) -> None:
        """Raises NotFound."""
        await self._client.request("DELETE", kind, f"{_ROOT}/{kind}/{NAME}")

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        """Its spec at each change from that version on, None when it is deleted. Ends now and then.

        Raises ApiError where the watch cannot be had or is cut; after either, read again.
        """
        query: dict[str, str | int] = {"fieldSelector": _BY_NAME, "resourceVersion": version}
        query["timeoutSeconds"] = _WATCH_SECONDS
        async with contextlib.aclosing(self._client.watch(kind, f"{_ROOT}/{kind}", query)) as lines:
            async for line in lines:
                event = understood("watch", kind, line, _Event)
                if event.type == "ERROR":
                    return
                if event.type == "BOOKMARK":
                    continue
                spec = understood("watch", kind, event.object, _Object).spec
                yield None if event.type == "DELETED" else spec


_BY_NAME: Final = f"metadata.name={NAME}"


class _Object(Schema):
    spec: dict[str, Any] = {}


class _List(Schema):
    metadata: ListMetadata
    items: list[_Object] = []


class _Event(Schema):
    type: str
    object: msgspec.Raw
