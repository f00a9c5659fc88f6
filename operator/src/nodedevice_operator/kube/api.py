"""Lists of the kinds that the operator watches, and what the requests of its features share.

Each feature owns its requests (see its api.py). Answers become records; failures are the errors of errors.py.
"""

import asyncio
import datetime
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote as quote_but_slashes

import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import InvalidResponse, NotFound
from nodedevice_operator.kube.client import APPLY, JSON, Client
from nodedevice_operator.kube.decode import (
    VALUE_ERRORS,
    Key,
    decode,
    decode_page,
    decode_record,
    key_of,
    log_undecodable,
)
from nodedevice_operator.objects.meta import PartialObjectList, ResourceList
from nodedevice_operator.objects.node import NodeList, NodeRecord, node_record
from nodedevice_operator.objects.nodedevice import NodeDeviceList, NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.pod import PodRecord, PodSchema, pod_record
from nodedevice_operator.objects.poddevice import PodDeviceList, PodDeviceRecord, pod_device_record

# A page of Nodes is some 2 MB of JSON; only one is held at a time.
PAGE: Final = 250

CORE: Final = "/api/v1"
OWN: Final = f"/apis/{names.API_VERSION}"

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

# Any list, with the metadata of its objects and nothing else.
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

ListOf = TypeVar("ListOf", NodeList, NodeDeviceList, PodDeviceList, PartialObjectList)


R = TypeVar("R")

_Lists: TypeAlias = type[NodeList] | type[NodeDeviceList] | type[PodDeviceList]
_FORMS: Final[Mapping[str, tuple[str, _Lists, Callable[[Any], Any]]]] = {
    "nodes": (CORE, NodeList, node_record),
    names.NODE_DEVICES: (OWN, NodeDeviceList, node_device_record),
    names.POD_DEVICES: (OWN, PodDeviceList, pod_device_record),
}


@dataclass(frozen=True, slots=True)
class Listed(Generic[R]):
    """A whole list, as of one version. undecoded: keys of its objects that cannot be decoded, as Store.replace takes them."""

    records: list[R]
    version: int
    undecoded: frozenset[Any] = frozenset()


class Requests:
    """What the requests of several features share: server-side apply, and reading one pod."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read_pod(self, namespace: str, name: str) -> PodRecord:
        """Which pod has that name now, and where it runs. Raises NotFound, also for what no pod can be called."""
        if not (_LABEL.fullmatch(namespace) and _POD_NAME.fullmatch(name)):
            # not even asked for: to a path a dot or two are more than a name
            raise NotFound("GET", "pods", "no pod can have that name", 404)
        path = f"{CORE}/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"
        data = await self._client.request("GET", "pods", path)
        return decode_record("GET", "pods", data, PodSchema, pod_record)

    async def _apply(self, what: str, path: str, body: Any, *, force: bool) -> bytes:
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER, "force": "true" if force else "false"}
        return await self._client.request("PATCH", what, path, query=query, body=body, content_type=APPLY)


class Cluster(Requests):
    """Lists of the three kinds that the operator watches."""

    async def served_kinds(self) -> frozenset[str]:
        """Plurals of our own kinds that the API server serves. Raises NotFound without our CRDs."""
        data = await self._client.request("GET", "apis", OWN)
        served = decode("GET", "apis", data, ResourceList)
        return frozenset(resource.name for resource in served.resources)

    async def list_nodes(self) -> Listed[NodeRecord]:
        """All Nodes."""
        return await self._list("nodes", f"{CORE}/nodes", NodeList, node_record)

    async def list_node_devices(self) -> Listed[NodeDeviceRecord]:
        """All NodeDevices."""
        path = f"{OWN}/{names.NODE_DEVICES}"
        return await self._list(names.NODE_DEVICES, path, NodeDeviceList, node_device_record)

    async def list_pod_devices(self) -> Listed[PodDeviceRecord]:
        """All PodDevices of all namespaces."""
        path = f"{OWN}/{names.POD_DEVICES}"
        return await self._list(names.POD_DEVICES, path, PodDeviceList, pod_device_record)

    async def list_versions(self, kind: str) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        """Uid and resource version of every object of that kind (its plural), by its key in the cache, page by page."""
        path = f"{_FORMS[kind][0]}/{kind}"
        async for page, _ in self._pages(kind, path, PartialObjectList, accept=_METADATA_ONLY):
            # an object without a valid version is skipped
            metadata = [item.metadata for item in page.items or () if item.metadata.resource_version.isdecimal()]
            yield {(m.namespace, m.name) if m.namespace else m.name: (m.uid, int(m.resource_version)) for m in metadata}

    async def find(self, kind: str, namespace: str, name: str) -> frozenset[str]:
        """Uid of that object, if it exists and can be decoded as a watch must decode it; none otherwise."""
        base, form, make = _FORMS[kind]
        path = f"{base}/namespaces/{path_segment(namespace)}/{kind}" if namespace else f"{base}/{kind}"
        data = await self._client.request("GET", kind, path, query={"fieldSelector": f"metadata.name={name}"})
        try:
            return frozenset(make(item).uid for item in msgspec.json.decode(data, type=form).items)
        except (msgspec.DecodeError, *VALUE_ERRORS):
            return frozenset()

    async def _list(self, what: str, path: str, form: type[ListOf], make: Callable[[Any], R]) -> Listed[R]:
        """A whole list as records. An object that cannot be decoded is logged, and delays no other."""
        records: list[R] = []
        undecoded: set[Key] = set()
        version = ""
        async for page, failed in self._pages(what, path, form):
            version = page.metadata.resource_version
            undecoded |= failed
            for item in page.items or ():
                try:
                    records.append(make(item))
                except VALUE_ERRORS as exc:
                    log_undecodable(what, item.metadata.name, exc)
                    undecoded.add(key_of(item.metadata.name, getattr(item.metadata, "namespace", "")))
        if not version.isdecimal():
            raise InvalidResponse("GET", what, f"the list has the resource version {version!r}")
        return Listed(records, int(version), frozenset(undecoded))

    async def _pages(
        self, what: str, path: str, form: type[ListOf], accept: str = JSON
    ) -> AsyncIterator[tuple[ListOf, frozenset[Key]]]:
        """A list page by page, all as of one moment: that of the first; with the keys of each that cannot be decoded."""
        query: dict[str, str | int] = {"limit": PAGE}
        while True:
            page = decode_page(what, await self._client.request("GET", what, path, query=query, accept=accept), form)
            yield page
            more = page[0].metadata.continue_
            if not more:
                return
            query = {"limit": PAGE, "continue": more}
            # decoding a page keeps the loop busy for a while; whoever waits goes first
            await asyncio.sleep(0)


def path_segment(name: str) -> str:
    """A name as one segment of a path, whatever characters an agent has put into it."""
    return quote_but_slashes(name, safe="")


def now_text() -> str:
    """The time in the API's own form, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
