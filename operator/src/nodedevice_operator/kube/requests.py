"""What the requests of several features share: server-side apply, lists in pages of a bounded length, and reading one pod."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from nodedevice_api import names
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.api_errors import NotFound, TooBig
from nodedevice_kube.paths import APPLY, JSON, MERGE_PATCH, PODS, Resource

from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode, decode_list, decode_record
from nodedevice_operator.objects.meta import ResourceList
from nodedevice_operator.objects.unwatched import PodRecord, PodSchema, pod_record

T = TypeVar("T")

NODEDEVICES: Final = Resource(names.API_VERSION, names.NODE_DEVICES)
PODDEVICES: Final = Resource(names.API_VERSION, names.POD_DEVICES, is_namespaced=True)
CONFIGS: Final = Resource(names.API_VERSION, names.NODE_DEVICE_CONFIGS)

PAGE: Final = 250  # objects, at most
# A page of 250 Nodes is some 2 MB of JSON. Decoded it takes several times as much.
_PAGE_BYTES: Final = 2 * 1024 * 1024
_MOST_PAGE_BYTES: Final = 2 * _PAGE_BYTES
_FEWER: Final = 8
# Longer responses are decoded in a thread: a page takes a tenth of a second or more, in which a leader could not renew.
MOST_IN_LOOP: Final = 64 * 1024
# 5,000 Leases are 3 to 4 MB
_MOST_WHOLE_BYTES: Final = 8 * _PAGE_BYTES
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def at(resource: Resource, name: str = "", namespace: str = "", subresource: str = "") -> tuple[str, str]:
    """What a request is about, for errors and metrics, and its path."""
    what = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return what, resource.path(name, namespace, subresource)


class Requests:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_pod(self, namespace: str, name: str) -> PodRecord:
        """The pod that has that name now, and its node. Raises NotFound, also for an invalid name."""
        if not (_LABEL.fullmatch(namespace) and _POD_NAME.fullmatch(name)):
            # not even asked for: to a path a dot or two are more than a name
            raise NotFound("GET", "pods", "no pod can have that name", 404)
        data = await self._client.request("GET", *at(PODS, name, namespace))
        return decode_record("GET", "pods", data, PodSchema, pod_record)

    async def _served(self, root: str) -> frozenset[str]:
        """Plurals that the API server serves in that group and version. Raises NotFound if it does not have it."""
        data = await self._client.request("GET", "apis", root)
        return frozenset(resource.name for resource in decode("GET", "apis", data, ResourceList).resources)

    async def _pages(
        self, what: str, path: str, schema: type[T], query: Mapping[str, str] | None = None
    ) -> AsyncIterator[list[T]]:
        """Items of a list, page by page, all of one version; without undecodable ones. query: for the first page."""

        def read(data: bytes) -> tuple[list[T], str]:
            page = decode_list(what, data, schema)
            return page.items, page.metadata.continue_

        async for items in self._read_pages(what, path, read, query or {}):
            yield items

    async def _read_pages(
        self,
        what: str,
        path: str,
        read: Callable[[bytes], tuple[T, str]],
        query: Mapping[str, str],
        accept: str = JSON,
    ) -> AsyncIterator[T]:
        """Reads a list page by page, each of a bounded length: big objects must not fill the memory in one page.

        A longer page is requested again with fewer objects. read: decodes a page, and returns the token of the next one, "" after
        the last. A list of version 0 comes whole from the API server's cache; if it is too long, it is read in pages of the current
        version.
        """
        asked: dict[str, str | int] = {**query}
        limit = PAGE
        while True:
            is_whole = asked.get("resourceVersion") == "0"
            most = _MOST_WHOLE_BYTES if is_whole else _MOST_PAGE_BYTES if limit > 1 else math.inf
            try:
                data = await self._client.request(
                    "GET", what, path, query={"limit": limit, **asked}, accept=accept, most_bytes=most
                )
            except TooBig:
                if is_whole:
                    del asked["resourceVersion"]
                else:
                    limit = max(limit // _FEWER, 1)
                continue
            page, token = await in_thread_if(len(data) > MOST_IN_LOOP, partial(read, data))
            limit = min(max(limit * _PAGE_BYTES // len(data), 1), PAGE)
            yield page
            del data, page
            if not token:
                return
            # the API server rejects a version together with a continue token
            asked = {**query, "continue": token}
            asked.pop("resourceVersion", None)
            # waiting requests go first
            await asyncio.sleep(0)

    async def _apply(
        self, what: str, path: str, body: Any, *, force: bool, manager: str = names.OPERATOR_FIELD_MANAGER
    ) -> bytes:
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._client.request("PATCH", what, path, query=query, body=body, content_type=APPLY)

    async def _merge(self, what: str, path: str, patch: Any, manager: str = names.OPERATOR_FIELD_MANAGER) -> bytes:
        query = {"fieldManager": manager}
        return await self._client.request("PATCH", what, path, query=query, body=patch, content_type=MERGE_PATCH)

    async def _delete(self, what: str, path: str, **preconditions: str) -> None:
        """Deletes exactly that object. Raises NotFound when it is gone, Conflict when another or a changed one has its name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        await self._client.request("DELETE", what, path, body=body)
