"""Client of the API server for the node's pods, the Node's UID, the node's NodeDevices and the agent's Lease."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec
from nodedevice_api import extended_resources, names
from nodedevice_api.nodedevice import NodeDeviceSpec
from nodedevice_common import unauthorized
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Request
from nodedevice_common.api_transport import EXEC_SECONDS, Transport
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.streams import lines
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    InvalidResponse,
    NotFound,
    TooBig,
    Unauthorized,
)
from nodedevice_kube.credentials import load
from nodedevice_kube.errors import ConnectionProblem
from nodedevice_kube.paths import APPLY, JSON, LEASES, METADATA, METADATA_LIST, Resource, base, selector, target

from nodedevice_agent import metrics
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kube.objects import KindsObject, NodeDeviceObject, NodeMetadataObject, NodeObject, ReviewObject
from nodedevice_agent.kube.responses import (
    EVERYTHING,
    MOST_BYTES_IN_LOOP,
    MOST_LISTED,
    MOST_OBJECT_BYTES,
    KubeObject,
    LargeObject,
    Page,
    Reading,
    next_line,
    read_list,
    watch_event,
)
from nodedevice_agent.kube.retries import is_disconnected

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)
Json = dict[str, Any]

# The longest silence of the API server before and within a response; watches have a limit of their own.
REQUEST_SECONDS = 10.0
# the buffer of a connection: each resource has one for its watch
_BUFFER_BYTES: Final = 8 * 1024
_LEASE = "Lease"
# Pages of a list without fields: objects of the first page, target size in bytes, and the most objects of a page.
_PAGE_OBJECTS: Final = 16
_PAGE_BYTES: Final = 4 * 1024 * 1024
_PAGE_MOST_OBJECTS: Final = 500
# outcomes of a write, in metrics; errors outside of this table may succeed later
_OUTCOMES: Final[tuple[tuple[tuple[type[ApiError], ...], str], ...]] = (
    ((Unauthorized,), "ApiUnauthorized"),
    ((Forbidden,), "ApiForbidden"),
    ((NotFound,), "ApiNotFound"),
    ((Gone,), "ApiGone"),
    ((Conflict, Invalid, TooBig), "ApiRefused"),
)


class KubeClient:
    """The agent's only client. Every method raises only ApiError."""

    def __init__(self, transport: Transport, server: str) -> None:
        self._transport = transport
        self.server = server
        self._is_disconnected = False
        # the credentials, by the last response; no other request succeeds either
        self.is_rejected = False

    @classmethod
    def connect(cls, kubeconfig: Path | None) -> Self:
        """Use a kubeconfig file, else the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config. Raises AgentSettingsError."""
        try:
            credentials = load(str(kubeconfig or ""), exec_seconds=EXEC_SECONDS)
        except ConnectionProblem as exc:
            raise AgentSettingsError(str(exc)) from exc
        server = credentials.settings.server
        connections = Connections(
            server,
            credentials.proxy,
            names.AGENT_FIELD_MANAGER,
            connect_seconds=REQUEST_SECONDS,
            buffer_bytes=_BUFFER_BYTES,
        )
        return cls(Transport(credentials, connections, seconds=REQUEST_SECONDS), server)

    async def close(self) -> None:
        await self._transport.close()

    async def node_uid(self, name: str) -> str:
        """Raises NotFound if the Node does not exist."""
        return (await self._node(name)).metadata.uid or ""

    async def node_capacity(self, name: str) -> dict[str, int]:
        """Quantities of extended resources, by name."""
        capacity = (await self._node(name)).status.capacity
        counts = {name: extended_resources.count(str(quantity)) for name, quantity in capacity.items()}
        return {
            name: count
            for name, count in counts.items()
            if count is not None and extended_resources.is_extended_resource(name)
        }

    async def _node(self, name: str) -> NodeObject:
        return await self._get("node", name, NodeObject.resource.path(name), NodeObject)

    async def node_devices_of(self, node_name: str, keep: Callable[[NodeDeviceObject], Any] | None = None) -> list[Any]:
        """List the NodeDevices of a node, reduced by `keep`. The server scans all of them: only after a lost checkpoint."""
        what = f"nodedevices of node {node_name}"
        return (await self.list(NodeDeviceObject, {"spec.nodeName": node_name}, keep, what=what))[0]

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        """Apply the object without a status, whether it exists or not. node: (name, uid) of the owner."""
        name = names.node_device_name(node[0], resource_name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node[0], "uid": node[1]}
        part = {"metadata": {"name": name, "ownerReferences": [owner]}}
        spec = NodeDeviceSpec(node_name=node[0], resource_name=resource_name)
        return await self._apply("creating", f"nodedevice {name}", {**part, "spec": msgspec.to_builtins(spec)})

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        """Apply the agent's whole part of the status. Raises NotFound when the object has to be created first."""
        part = {"metadata": {"name": name}, "status": status}
        return await self._apply("writing", f"the status of nodedevice {name}", part, "status")

    async def _apply(self, verb: str, what: str, part: Json, subresource: str = "") -> NodeDeviceObject:
        body = {"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE, **part}
        path = NodeDeviceObject.resource.path(part["metadata"]["name"], subresource=subresource)
        with _counted(names.NODE_DEVICE):
            request = _write("PATCH", path, body, APPLY, force="true")
            return await self._call(verb, what, request, NodeDeviceObject)

    async def list(
        self, kind: type[K], fields: Mapping[str, str], keep: Callable[[K], Any] | None = None, *, what: str = ""
    ) -> tuple[list[Any], str]:
        """List the objects of all namespaces that match the fields. Also returns the resource version ("" if a proxy drops it).

        keep: reduces each object as it arrives; called in a thread if the object is long. what: replaces the kind in errors.
        The list comes from the API server's store, never from its cache. A list with fields is one request without `limit`: only
        such a request uses the API server's index, and further pages would walk all objects of the cluster.
        """
        objects: list[Any] = []
        octets = 0

        def add(one: K) -> None:
            nonlocal octets
            if isinstance(one, LargeObject):
                octets += one.octets
                if octets > MOST_LISTED:
                    one.lighten()
            objects.append(one if keep is None else keep(one))

        params, limit = {"fieldSelector": selector(fields)} if fields else {"limit": str(_PAGE_OBJECTS)}, _PAGE_OBJECTS
        while True:
            page = await self._page(kind, params, add, what)
            if not page.continue_:
                return objects, page.version
            limit = min(max(limit * _PAGE_BYTES // page.octets, 1), _PAGE_MOST_OBJECTS)
            params |= {"limit": str(limit), "continue": page.continue_}

    async def _page(self, kind: type[K], params: Mapping[str, str], add: Callable[[K], object], what: str = "") -> Page:
        verb, what = "listing", what or kind.resource.plural
        request = _read(kind.resource.path(), params, METADATA_LIST if kind is NodeMetadataObject else JSON)
        with self._request(verb, what):
            async with await self._transport.open(verb, what, request) as stream:
                return await read_list(stream.chunks(), kind, add)

    async def served(self, group_version: str) -> frozenset[str]:
        """The plurals of the kinds that the API server serves in a group and version, such as resource.k8s.io/v1."""
        try:
            kinds = await self._get("the kinds of", group_version, base(group_version), KindsObject)
        except NotFound:
            return frozenset()
        return frozenset(kind.name for kind in kinds.resources)

    async def object_of(self, kind: type[K], namespace: str, name: str, most_bytes: int) -> K:
        """Read one object of a namespace, and no more of the response than the limit."""
        path = kind.resource.path(name, namespace)
        return await self._get(kind.resource.plural, f"{namespace}/{name}", path, kind, most_bytes)

    async def _get(self, kind: str, name: str, path: str, form: type[T], most_bytes: int = MOST_OBJECT_BYTES) -> T:
        return await self._call("reading", f"{kind} {name}", _read(path), form, most_bytes)

    async def _call(
        self, verb: str, what: str, request: Request, form: type[T], most_bytes: int = MOST_OBJECT_BYTES
    ) -> T:
        with self._request(verb, what):
            content = await self._transport.call(verb, what, request, most_bytes=most_bytes)
            return await in_thread_if(len(content) > MOST_BYTES_IN_LOOP, partial(decode, content, form))

    async def catch_up(self, kind: type[K], fields: Mapping[str, str]) -> str:
        """The version of the API server's store, by a list of one object: the cache of that kind catches up with the store."""
        return (await self._first(kind, fields, lambda found: None)).version

    async def exists(self, kind: type[K], fields: Mapping[str, str]) -> bool:
        """Whether any object matches the fields. Costs the same."""
        objects: list[K] = []
        await self._first(kind, fields, objects.append)
        return bool(objects)

    async def _first(self, kind: type[K], fields: Mapping[str, str], add: Callable[[K], object]) -> Page:
        return await self._page(kind, {"fieldSelector": selector(fields), "limit": "1"}, add)

    @asynccontextmanager
    async def watch(
        self, kind: type[K], fields: Mapping[str, str], version: str, seconds: int, reading: Reading = EVERYTHING
    ) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """Request the changes since that version for about so many seconds. Entered when the server has accepted the request.

        The iterator yields events of watch_event(), until the server ends the watch in order. Raises Silent after
        SILENCE_SECONDS without data.
        """
        what = kind.resource.plural
        params = {
            "fieldSelector": selector(fields),
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
            "watch": "true",
        }
        request = _read(kind.resource.path(), params, METADATA if kind is NodeMetadataObject else JSON)
        with self._request("watching", what):
            stream = await self._transport.open("watching", what, request, is_watch=True)
        async with stream:
            yield self._events(what, kind, lines(stream.chunks(), MOST_OBJECT_BYTES), reading)

    async def _events(
        self, what: str, kind: type[K], found: AsyncIterator[bytes], reading: Reading
    ) -> AsyncIterator[tuple[str, Any]]:
        while True:
            with self._request("watching", what):
                line = await next_line(what, found)
                if line is None:
                    return
                is_long = len(line) > MOST_BYTES_IN_LOOP
                event = await in_thread_if(is_long, partial(watch_event, what, line, kind, reading))
            yield event
            # none is kept while the next one is awaited
            del line, event

    async def review(self, group: str, kind: str, spec: Json) -> Json:
        """The status that the API server gives a TokenReview or SubjectAccessReview."""
        resource = Resource(f"{group}/v1", f"{kind.lower()}s")
        body = {"apiVersion": resource.api_version, "kind": kind, "spec": spec}
        what = f"a {kind.lower()} of {group}"
        return (await self._call("creating", what, _write("POST", resource.path(), body), ReviewObject)).status

    async def get_lease(self, namespace: str, name: str) -> Json:
        return await self._get("lease", f"{namespace}/{name}", LEASES.path(name, namespace), Json)

    async def create_lease(self, lease: Json) -> Json:
        with _counted(_LEASE):
            request = _write("POST", LEASES.path(namespace=lease["metadata"]["namespace"]), lease)
            return await self._call("creating", "the lease", request, Json)

    async def replace_lease(self, lease: Json) -> Json:
        """Raises Conflict when another client wrote it meanwhile."""
        metadata = lease["metadata"]
        with _counted(_LEASE):
            request = _write("PUT", LEASES.path(metadata["name"], metadata["namespace"]), lease)
            return await self._call("renewing", "the lease", request, Json)

    @contextmanager
    def _request(self, verb: str, what: str) -> Iterator[None]:
        """The context of one request or response. It alone logs a lost and a restored connection, and rejected credentials."""
        try:
            yield
        except Undecodable as exc:
            self._connected()
            raise InvalidResponse(verb, what, f"cannot decode the response: {exc}") from exc
        except ApiError as exc:
            if exc.status:
                self._connected()
            elif is_disconnected(exc):
                if not self._is_disconnected:
                    extra = {"server": self.server, "error": str(exc)}
                    log.warning("API server unreachable; retrying", extra=extra)
                self._is_disconnected = True
            if isinstance(exc, Unauthorized):
                if not self.is_rejected:
                    log.error(unauthorized.EVENT, extra={"server": self.server, "error": str(exc)})
                self.is_rejected = True
            raise
        self._connected()
        if self.is_rejected:
            log.info(unauthorized.OVER, extra={"server": self.server})
        self.is_rejected = False

    def _connected(self) -> None:
        if self._is_disconnected:
            log.info("API server reachable again", extra={"server": self.server})
        self._is_disconnected = False


def _read(path: str, params: Mapping[str, str] | None = None, accept: str = JSON) -> Request:
    return Request("GET", target(path, params), (("Accept", accept),))


def _write(method: str, path: str, body: Json, content_type: str = JSON, **params: str) -> Request:
    headers = (("Accept", JSON), ("Content-Type", content_type))
    query = {"fieldManager": names.AGENT_FIELD_MANAGER, **params}
    return Request(method, target(path, query), headers, msgspec.json.encode(body))


@contextmanager
def _counted(kind: str) -> Iterator[None]:
    """Count one write of that kind by its outcome; a cancelled one is not counted."""
    try:
        yield
    except ApiError as exc:
        outcome = next((name for kinds, name in _OUTCOMES if isinstance(exc, kinds)), "ApiUnreachable")
        metrics.API_WRITES.labels(kind, outcome).inc()
        raise
    metrics.API_WRITES.labels(kind, "ok").inc()
