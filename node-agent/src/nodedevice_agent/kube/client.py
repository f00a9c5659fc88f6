"""Client of the API server for what the agent may use: its pods, its Node's UID, its own NodeDevices, its Lease.

lightkube makes the requests, `transport` sends them. The types here hold only what is read.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core import resource as res
from lightkube.core.generic_client import BasicRequest
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType
from msgspec import to_builtins
from nodedevice_api import extended_resources, names
from nodedevice_api.nodedevice import NodeDeviceSpec
from nodedevice_common import rejected
from nodedevice_common.decoding import decode
from nodedevice_common.streams import lines
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.credentials import load
from nodedevice_kube.errors import ConnectionProblem

from nodedevice_agent import metrics
from nodedevice_agent.errors import (
    AgentSettingsError,
    ApiDisconnected,
    ApiNotFound,
    ApiRefused,
    ApiRequestError,
    ApiUnauthorized,
    ApiUnreachable,
)
from nodedevice_agent.kube.objects import (
    REVIEWS,
    KindsObject,
    NodeDeviceObject,
    NodeDeviceStatusObject,
    NodeMetadataObject,
    NodeObject,
)
from nodedevice_agent.kube.responses import (
    EVERYTHING,
    MOST_BYTES_IN_LOOP,
    MOST_LISTED,
    MOST_OBJECT_BYTES,
    REQUEST_SECONDS,
    LargeObject,
    Page,
    Reading,
    decode_responses_of,
    next_line,
    read_list,
    translated,
    watch_event,
)
from nodedevice_agent.kube.transport import EXEC_SECONDS, Transport

log = logging.getLogger(__name__)

R = TypeVar("R", bound=res.Resource)

# the form of responses without spec and status
_METADATA: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

_LEASE = "Lease"

# Of a list without fields: objects of the first page, bytes that a page is to have, and the most objects of one.
_PAGE_OBJECTS: Final = 16
_PAGE_BYTES: Final = 4 * 1024 * 1024
_PAGE_MOST_OBJECTS: Final = 500


class KubeClient:
    """One client for the whole agent. Every method raises ApiRequestError and nothing else."""

    def __init__(self, client: AsyncClient, server: str) -> None:
        decode_responses_of(client)
        # compressed, a response of a few kilobytes may be megabytes of text at once
        inner: Any = client._client
        inner._client.headers["Accept-Encoding"] = "identity"
        self._client = client
        self.server = server
        self._is_disconnected = False
        # the credentials, by the last response; no other request succeeds either
        self.is_rejected = False

    @classmethod
    def connect(cls, kubeconfig: Path | None) -> Self:
        """From a kubeconfig file, else from the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config. Raises AgentSettingsError."""
        try:
            credentials = load(str(kubeconfig or ""), exec_seconds=EXEC_SECONDS)
        except ConnectionProblem as exc:
            raise AgentSettingsError(str(exc)) from exc
        server = credentials.settings.server
        client: AsyncClient = AsyncClient(
            config=SingleConfig(
                context_name="", context=Context(cluster=""), cluster=Cluster(server=server), user=User(), fname=None
            ),
            timeout=httpx2.Timeout(REQUEST_SECONDS),
            transport=Transport(credentials),
            field_manager=names.AGENT_FIELD_MANAGER,
        )
        return cls(client, server)

    async def close(self) -> None:
        await self._client.close()

    async def node_uid(self, name: str) -> str:
        """Raises ApiNotFound when there is no such Node."""
        with self._request(f"reading node {name}"):
            node = await self._client.get(NodeObject, name)
        return node.metadata.uid or ""

    async def node_capacity(self, name: str) -> dict[str, int]:
        """Of extended resources, by name. Raises ApiRequestError."""
        with self._request(f"reading node {name}"):
            node = await self._client.get(NodeObject, name)
        found = {name: extended_resources.count(str(quantity)) for name, quantity in node.status.capacity.items()}
        return {
            name: number
            for name, number in found.items()
            if number is not None and extended_resources.is_extended_resource(name)
        }

    async def node_devices_of(self, node_name: str, keep: Callable[[NodeDeviceObject], Any] | None = None) -> list[Any]:
        """What is kept of all NodeDevices of a node. The server scans all of them, so only after a lost checkpoint."""
        of_node = f"listing nodedevices of node {node_name}"
        found, _ = await self.list(NodeDeviceObject, {"spec.nodeName": node_name}, keep, what=of_node)
        return found

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        """Apply the object without a status, whether it exists or not. node: (name, uid) of the owner."""
        name = names.node_device_name(node[0], resource_name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node[0], "uid": node[1]}
        part = {"metadata": {"name": name, "ownerReferences": [owner]}}
        spec = NodeDeviceSpec(node_name=node[0], resource_name=resource_name)
        return await self._apply(f"creating nodedevice {name}", NodeDeviceObject, {**part, "spec": to_builtins(spec)})

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        """Apply the agent's whole part of the status. Raises ApiNotFound when the object has to be created first."""
        part = {"metadata": {"name": name}, "status": status}
        return await self._apply(f"writing the status of nodedevice {name}", NodeDeviceStatusObject, part)

    async def _apply(self, what: str, kind: type[NodeDeviceObject], part: dict[str, Any]) -> NodeDeviceObject:
        body = {"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE, **part}
        name = part["metadata"]["name"]
        with _counted(names.NODE_DEVICE), self._request(what):
            return await self._client.patch(kind, name, body, patch_type=PatchType.APPLY, force=True)

    async def list(
        self, kind: type[R], fields: Mapping[str, str], keep: Callable[[R], Any] | None = None, *, what: str = ""
    ) -> tuple[list[Any], str]:
        """What is kept of all objects that match the fields, and the resource version to watch from. Pods are listed in all
        namespaces. keep: called with each object as it arrives, in a thread with a long one. what: names the request in errors.

        The list is as new as the API server's store, never of its cache. The version is "" in the response of a proxy that drops
        it: the objects can be used all the same. A list with fields is one request without `limit`: only such a request uses the
        API server's index, and each further page would walk all objects of the cluster. Others are read in pages.
        """
        found: list[Any] = []
        large = _LargeObjects()

        def add(one: R) -> None:
            large.add(one)
            found.append(one if keep is None else keep(one))

        params, limit = {"fieldSelector": _selector(fields)} if fields else {"limit": str(_PAGE_OBJECTS)}, _PAGE_OBJECTS
        while True:
            page = await self._page(kind, params, add, what or f"listing {_plural(kind)}")
            if not page.continue_:
                return found, page.version
            limit = min(max(limit * _PAGE_BYTES // page.octets, 1), _PAGE_MOST_OBJECTS)
            params |= {"limit": str(limit), "continue": page.continue_}

    async def _page(self, kind: type[R], params: Mapping[str, str], add: Callable[[R], object], what: str) -> Page:
        client: Any = self._client._client
        headers = {"Accept": _METADATA.format("List")} if kind is NodeMetadataObject else None
        with self._request(what):
            request = client.prepare_request("list", kind, params=dict(params), headers=headers, **_scope(kind))
            response = await self._begun(request)
            try:
                return await read_list(response.aiter_bytes(), kind, add)
            finally:
                await response.aclose()

    async def served(self, group_version: str) -> frozenset[str]:
        """The plurals of the kinds that the API server serves of a group, such as resource.k8s.io/v1; none where it has no such
        group in that version.
        """
        client: Any = self._client._client
        request = BasicRequest("GET", f"apis/{group_version}")
        try:
            with self._request(f"reading the kinds of {group_version}"):
                response = await client.send(client.build_adapter_request(request))
                client.raise_for_status(response)
                found = decode(response.content, KindsObject)
        except ApiNotFound:
            return frozenset()
        return frozenset(each.name for each in found.resources)

    async def object_of(self, kind: type[R], namespace: str, name: str, most_bytes: int) -> R:
        """One object of a namespace. Of a response that is longer no more than that is read."""
        what = f"reading {_plural(kind)} {namespace}/{name}"
        client: Any = self._client._client
        with self._request(what):
            request = client.prepare_request("get", kind, name=name, namespace=namespace)
            response = await self._begun(request)
            try:
                content = bytearray()
                async for some in response.aiter_bytes():
                    content += some
                    if len(content) > most_bytes:
                        raise ApiRefused(what, f"the response has more than {most_bytes} bytes")
            finally:
                await response.aclose()
            return await in_thread_if(len(content) > MOST_BYTES_IN_LOOP, partial(decode, bytes(content), kind))

    async def catch_up(self, kind: type[R], fields: Mapping[str, str]) -> str:
        """A consistent read, for which the API server's cache of that kind has to catch up with its store; the version of both.

        Costs a list of one object.
        """
        return (await self._first(kind, fields, lambda found: None)).version

    async def exists(self, kind: type[R], fields: Mapping[str, str]) -> bool:
        """Whether any object matches the fields. Costs the same."""
        found: list[R] = []
        await self._first(kind, fields, found.append)
        return bool(found)

    async def _first(self, kind: type[R], fields: Mapping[str, str], add: Callable[[R], object]) -> Page:
        return await self._page(
            kind, {"fieldSelector": _selector(fields), "limit": "1"}, add, f"listing {_plural(kind)}"
        )

    @asynccontextmanager
    async def watch(
        self, kind: type[R], fields: Mapping[str, str], version: str, seconds: int, reading: Reading = EVERYTHING
    ) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """One request for the changes since that version, for about so many seconds. Entered once the server has accepted it.

        The iterator brings ADDED, MODIFIED or DELETED with what is kept of the object, LATER with metadata alone where the object
        is not read now, and BOOKMARK with a version alone. It ends when the server ends the watch in order. Raises ApiSilent when
        nothing has come for SILENCE_SECONDS.
        """
        what = f"watching {_plural(kind)}"
        params = {
            "fieldSelector": _selector(fields),
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "allowWatchBookmarks": "true",
        }
        with self._request(what):
            response = await self._opened(kind, params)
        try:
            yield self._events(what, kind, lines(response.aiter_bytes(), MOST_OBJECT_BYTES), reading)
        finally:
            await response.aclose()

    async def _opened(self, kind: type[R], params: dict[str, str]) -> httpx2.Response:
        # the library's own watch repeats the request at once and for ever, and asks for no bookmarks
        client: Any = self._client._client
        headers = {"Accept": _METADATA.format("")} if kind is NodeMetadataObject else None
        request = client.prepare_request("list", kind, watch=True, params=params, headers=headers, **_scope(kind))
        request.timeout = _WATCH_TIMEOUT
        return await self._begun(request)

    async def _begun(self, request: BasicRequest) -> httpx2.Response:
        """A response whose body is still to be read."""
        client: Any = self._client._client
        response: httpx2.Response = await client.send(client.build_adapter_request(request), stream=True)
        if not response.is_success:
            # which closes it as well
            await response.aread()
            client.raise_for_status(response)
        return response

    async def _events(
        self, what: str, kind: type[R], found: AsyncIterator[bytes], reading: Reading
    ) -> AsyncIterator[tuple[str, Any]]:
        while True:
            with self._request(what):
                line = await next_line(what, found)
                if line is None:
                    return
                is_long = len(line) > MOST_BYTES_IN_LOOP
                event = await in_thread_if(is_long, partial(watch_event, what, line, kind, reading))
            yield event
            # none is kept while the next one is awaited
            del line, event

    async def review(self, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The status that the API server gives a TokenReview or SubjectAccessReview."""
        with self._request(f"creating a {kind.lower()} of {group}"):
            return (await self._client.create(REVIEWS[kind](spec=spec))).status

    async def get_lease(self, namespace: str, name: str) -> Lease:
        with self._request(f"reading lease {namespace}/{name}"):
            return await self._client.get(Lease, name, namespace=namespace)

    async def create_lease(self, lease: Lease) -> Lease:
        with _counted(_LEASE), self._request("creating the lease"):
            return await self._client.create(lease)

    async def replace_lease(self, lease: Lease) -> Lease:
        """Raises ApiRefused (409) when another client wrote it meanwhile."""
        with _counted(_LEASE), self._request("renewing the lease"):
            return await self._client.replace(lease)

    @contextmanager
    def _request(self, what: str) -> Iterator[None]:
        """One request or response. Only here a lost connection is logged, with the address, and its end; so are credentials that
        the API server rejects.
        """
        try:
            with translated(what):
                yield
        except ApiDisconnected as exc:
            if not self._is_disconnected:
                extra = {"server": self.server, "error": str(exc)}
                log.warning("API server unreachable; retrying", extra=extra)
            self._is_disconnected = True
            raise
        except ApiRequestError as exc:
            if exc.status:
                self._connected()
            if isinstance(exc, ApiUnauthorized):
                if not self.is_rejected:
                    log.error(rejected.EVENT, extra={"server": self.server, "error": str(exc)})
                self.is_rejected = True
            raise
        self._connected()
        if self.is_rejected:
            log.info(rejected.OVER, extra={"server": self.server})
        self.is_rejected = False

    def _connected(self) -> None:
        if self._is_disconnected:
            log.info("API server reachable again", extra={"server": self.server})
        self._is_disconnected = False


class _LargeObjects:
    """Those of a list: beyond MOST_LISTED what is large is dropped."""

    def __init__(self) -> None:
        self._octets = 0

    def add(self, found: object) -> None:
        if isinstance(found, LargeObject):
            self._octets += found.octets
            if self._octets > MOST_LISTED:
                found.lighten()


def _selector(fields: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in fields.items())


def _plural(kind: Any) -> str:
    return str(kind._api_info.plural)


def _scope(kind: type) -> dict[str, Any]:
    # the other kinds have no namespace
    return {"namespace": "*"} if issubclass(kind, res.NamespacedResourceG) else {}


@contextmanager
def _counted(kind: str) -> Iterator[None]:
    """Count one write of that kind by its outcome; a cancelled one is not counted."""
    try:
        yield
    except ApiRequestError as exc:
        outcome = ApiUnreachable if isinstance(exc, ApiDisconnected) else type(exc)
        metrics.API_WRITES.labels(kind, outcome.__name__).inc()
        raise
    metrics.API_WRITES.labels(kind, "ok").inc()


# how long a watch is silent is measured by the line, not by the byte
_WATCH_TIMEOUT = httpx2.Timeout(REQUEST_SECONDS, read=None)
