"""Requests about the policy and its binding: read, written and watched by name.

Specs are passed as they are; policy.py builds and compares them. RBAC allows this one name; only creation cannot be limited so.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from nodedevice_api import names

from nodedevice_operator.kube.client import APPLY, Requests
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.objects.meta import ListMetadata, RawWatchEvent, ResourceList, Schema
from nodedevice_operator.requiredplugins.policy import API_VERSION, NAME, Spec, body

_ROOT: Final = f"/apis/{API_VERSION}"
_JSON_PATCH: Final = "application/json-patch+json"
# Shorter than the 5 minutes after which some load balancers drop a silent connection.
_WATCH_SECONDS: Final = 240


class RequiredPluginsApi(Requests):
    """Requests about the two objects. `kind` is the plural everywhere."""

    async def served(self) -> frozenset[str]:
        """Plurals that the API server serves in the group and version of these objects. Raises NotFound where it knows neither."""
        data = await self._client.request("GET", "apis", _ROOT)
        return frozenset(found.name for found in decode("GET", "apis", data, ResourceList).resources)

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        """Spec of the object, None where it does not exist, and the version from which a watch goes on."""
        data = await self._client.request("GET", kind, f"{_ROOT}/{kind}", query={"fieldSelector": _BY_NAME})
        page = decode("GET", kind, data, _PolicyList)
        return (page.items[0].spec if page.items else None), page.metadata.resource_version

    async def apply(self, kind: str, spec: Spec) -> Spec:
        """Create or update the object by server-side apply; return its spec after the write.

        Entries of others in its lists stay.
        """
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER, "force": "true"}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=body(kind, spec), content_type=APPLY
        )
        return decode("PATCH", kind, data, _PolicyObject).spec

    async def replace(self, kind: str, spec: Spec) -> Spec:
        """Replace the whole spec; return it after the write. Raises NotFound."""
        patch = [{"op": "replace", "path": "/spec", "value": dict(spec)}]
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        data = await self._client.request(
            "PATCH", kind, f"{_ROOT}/{kind}/{NAME}", query=query, body=patch, content_type=_JSON_PATCH
        )
        return decode("PATCH", kind, data, _PolicyObject).spec

    async def delete(self, kind: str) -> None:
        """Raises NotFound."""
        await self._client.request("DELETE", kind, f"{_ROOT}/{kind}/{NAME}")

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        """Its spec at each change from that version on, None when it is deleted. Ends now and then.

        Raises ApiError when the watch fails; after that or an end, read again.
        """
        query: dict[str, str | int] = {"fieldSelector": _BY_NAME, "resourceVersion": version}
        query["timeoutSeconds"] = _WATCH_SECONDS
        async with contextlib.aclosing(self._client.watch(kind, f"{_ROOT}/{kind}", query)) as lines:
            async for line in lines:
                event = decode("watch", kind, line, RawWatchEvent)
                if event.type == "ERROR":
                    return
                if event.type == "BOOKMARK":
                    continue
                spec = decode("watch", kind, event.object, _PolicyObject).spec
                yield None if event.type == "DELETED" else spec


_BY_NAME: Final = f"metadata.name={NAME}"


class _PolicyObject(Schema):
    spec: dict[str, Any] = {}


class _PolicyList(Schema):
    metadata: ListMetadata
    items: list[_PolicyObject] = []
