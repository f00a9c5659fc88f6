"""The kinds that the operator watches, and their lists. Objects become records; failures are the errors of errors.py."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from nodedevice_api import names
from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable
from nodedevice_kube.api_errors import InvalidResponse
from nodedevice_kube.paths import METADATA_LIST, segment

from nodedevice_operator.kube.client import CORE, OWN
from nodedevice_operator.kube.decode import VALUE_ERRORS, Key, decode, decode_page, key_of, log_undecodable
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.objects.meta import ListSchema, PartialObject, PartialObjectList, WatchEvent
from nodedevice_operator.objects.node import NodeRecord, NodeSchema, node_record
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema
from nodedevice_operator.objects.poddevice import PodDeviceRecord, PodDeviceSchema, pod_device_record

R = TypeVar("R")


class Kind(Generic[R]):
    """selector, labels: of the watch. needs_status: a Node without its status would seem to have lost all its capacity."""

    def __init__(
        self,
        name: str,
        base: str,
        schema: Any,
        record: Callable[[Any], R],
        *,
        needs_status: bool = False,
        selector: str = "",
        labels: str = "",
    ) -> None:
        self.name, self.path = name, f"{base}/{name}"
        self.base, self.selector = base, selector
        self.schema, self.record, self.needs_status = schema, record, needs_status
        self.page, self.event = ListSchema[schema], WatchEvent[schema]
        selectors = {"fieldSelector": selector, "labelSelector": labels}
        self.query = {key: value for key, value in selectors.items() if value}


NODES: Final[Kind[NodeRecord]] = Kind("nodes", CORE, NodeSchema, node_record, needs_status=True)
NODE_DEVICES: Final[Kind[NodeDeviceRecord]] = Kind(names.NODE_DEVICES, OWN, NodeDeviceSchema, node_device_record)
POD_DEVICES: Final[Kind[PodDeviceRecord]] = Kind(names.POD_DEVICES, OWN, PodDeviceSchema, pod_device_record)
KINDS: Final[tuple[Kind[Any], ...]] = (NODES, NODE_DEVICES, POD_DEVICES)


@dataclass(frozen=True, slots=True)
class Listed(Generic[R]):
    """A list or a page of one, as of one version. undecoded: keys of objects that cannot be decoded, for Store.replace."""

    records: list[R]
    version: int
    undecoded: frozenset[Any] = frozenset()


class Cluster(Requests):
    async def list_all(self, kind: Kind[R]) -> list[R]:
        return [record async for page in self.pages(kind) for record in page.records]

    async def pages(self, kind: Kind[R]) -> AsyncIterator[Listed[R]]:
        """The same page by page. An object that cannot be decoded is logged, and delays no other."""

        def read(data: bytes) -> tuple[Listed[R], str]:
            page, failed = decode_page(kind.name, data, kind.page, kind.schema, needs_status=kind.needs_status)
            records: list[R] = []
            undecoded: set[Key] = {*failed}
            # each goes as its record comes, so that the two never take up memory together
            items = page.items[::-1]
            page.items = []
            while items:
                item = items.pop()
                try:
                    records.append(kind.record(item))
                except VALUE_ERRORS as exc:
                    key = key_of(item.metadata.name, item.metadata.namespace)
                    log_undecodable(kind.name, key, exc)
                    undecoded.add(key)
            version = _checked(kind, page.metadata.resource_version)
            return Listed(records, version, frozenset(undecoded)), page.metadata.continue_

        async for listed in self._read_pages(kind.name, kind.path, read, kind.query):
            yield listed

    async def store_version(self, kind: Kind[Any]) -> int:
        """The version of the API server's store now, by a consistent read of one object."""
        query: dict[str, str | int] = {"limit": 1, **kind.query}
        data = await self._client.request("GET", kind.name, kind.path, query=query, accept=METADATA_LIST)
        return _checked(kind, decode("GET", kind.name, data, PartialObjectList).metadata.resource_version)

    async def list_versions(self, kind: Kind[Any]) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        """Uid and resource version of every object of that kind, by its key in the cache, page by page."""

        def read(data: bytes) -> tuple[Any, str]:
            page, _ = decode_page(kind.name, data, PartialObjectList, PartialObject, needs_status=True)
            return page, page.metadata.continue_

        async for page in self._read_pages(kind.name, kind.path, read, kind.query, METADATA_LIST):
            # an object without a valid version is skipped
            metadata = [item.metadata for item in page.items or () if item.metadata.resource_version.isdecimal()]
            yield {(m.namespace, m.name) if m.namespace else m.name: (m.uid, int(m.resource_version)) for m in metadata}

    async def find(self, kind: Kind[Any], namespace: str, name: str) -> frozenset[str]:
        """Uid of that object, if it exists and can be decoded as a watch must decode it; none otherwise."""
        path = f"{kind.base}/namespaces/{segment(namespace)}/{kind.name}" if namespace else kind.path
        selector = ",".join(filter(None, (kind.selector, f"metadata.name={name}")))
        data = await self._client.request("GET", kind.name, path, query={"fieldSelector": selector})
        try:
            return frozenset(kind.record(item).uid for item in decoding.decode(data, kind.page).items)
        except (Undecodable, *VALUE_ERRORS):
            return frozenset()


def _checked(kind: Kind[Any], version: str) -> int:
    if not version.isdecimal():
        raise InvalidResponse("GET", kind.name, f"the list has the resource version {version!r}")
    return int(version)
