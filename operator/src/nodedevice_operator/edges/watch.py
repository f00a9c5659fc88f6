"""kopf, as a watch and nothing else: its events go into the cache as slim records, and dirty nodes are touched.

Only on.event handlers, which write nothing: no finalizers, annotations, indices, timers or daemons. kopf logs in with a
session of ours, so that tokens are fresh, and so that we see each list and watch it makes.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import aiohttp
import kopf
import msgspec
from nodedevice_api import names

from nodedevice_operator.edges import wire, wire_forms
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.credentials import Credentials
from nodedevice_operator.edges.health import ApiHealth
from nodedevice_operator.edges.kopf_settings import tuned
from nodedevice_operator.edges.node_work import OnNews
from nodedevice_operator.edges.sync import KINDS, NODES, Sync
from nodedevice_operator.errors import CredentialsError, Forbidden, Unavailable, Unreachable

log = logging.getLogger(__name__)

F = TypeVar("F", bound=wire_forms.Wire)


class Watch:
    """What kopf tells us, and when it began to."""

    def __init__(
        self,
        cache: Cache,
        sync: Sync,
        touch: Callable[[str], None],
        on_news: OnNews,
        credentials: Credentials,
        health: ApiHealth,
    ) -> None:
        self._cache = cache
        self._sync = sync
        self._touch = touch
        self._on_news = on_news
        self._credentials = credentials
        self._health = health
        self._listed: set[str] = set()

    async def run(self) -> None:
        """Watch until SIGTERM or SIGINT, which kopf takes for itself; anything else raises, and the cache stays."""
        self._listed.clear()
        # no stop_flag: kopf would leave the task that waits for it, and then wait 5 s for that task
        await kopf.operator(registry=self._registry(), settings=tuned(), clusterwide=True, standalone=True)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event("", "v1", NODES, registry=registry)(self._on_node)
        own: Final = (names.GROUP, names.VERSION)
        kopf.on.event(*own, names.NODE_DEVICES, registry=registry)(self._on_node_device)
        kopf.on.event(*own, names.POD_DEVICES, registry=registry)(self._on_pod_device)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context())
        session = aiohttp.ClientSession(connector=connector, middlewares=(self._observe,))
        return kopf.AiohttpSession(server=self._credentials.server, aiohttp_session=session)

    async def _observe(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Every request of kopf passes here: it gets a fresh token, and its outcome is noted."""
        kind = request.url.path.rpartition("/")[2]
        is_watch = "watch" in request.url.query
        verb = "watch" if is_watch else "list"
        try:
            authorization = self._credentials.authorization()
            if authorization:
                request.headers["Authorization"] = authorization
            response = await handler(request)
        except CredentialsError as exc:
            self._health.failed(Unreachable(verb, kind, str(exc)))
            raise aiohttp.ClientConnectionError(str(exc)) from exc
        except (aiohttp.ClientConnectionError, TimeoutError) as exc:
            self._health.failed(Unreachable(verb, kind, str(exc) or type(exc).__name__))
            raise
        self._note(verb, kind, response.status)
        return response

    def _note(self, verb: str, kind: str, status: int) -> None:
        if status in (401, 403):
            self._health.failed(Forbidden(verb, kind, f"HTTP {status}", status))
        elif status == 429 or status >= 500:
            self._health.failed(Unavailable(verb, kind, f"HTTP {status}", status))
        elif status == 200:
            self._health.succeeded(verb, kind)
            if kind in KINDS and verb == "list":
                self._listed.add(kind)
            elif kind in self._listed:
                # a watch goes on from where it was cut off, and needs no list; only one that follows a list does
                self._listed.discard(kind)
                self._sync.begun(kind)

    async def _on_node(self, event: kopf.RawEvent, **_: Any) -> None:
        form = _decode(event, wire_forms.Node)
        if form is None:
            return
        record = wire.node(form)
        store = self._cache.nodes
        if store.remove(record.key, record.uid) if _is_end(event) else store.put(record):
            self._touch(record.name)

    async def _on_node_device(self, event: kopf.RawEvent, **_: Any) -> None:
        form = _decode(event, wire_forms.NodeDevice)
        if form is None:
            return
        record = wire.node_device(form)
        store = self._cache.node_devices
        before = store.get(record.key)
        if _is_end(event):
            if store.remove(record.key, record.uid):
                self._touch(record.node)
        elif store.put(record):
            self._on_news(before, record)

    async def _on_pod_device(self, event: kopf.RawEvent, **_: Any) -> None:
        form = _decode(event, wire_forms.PodDevice)
        if form is None:
            return
        record = wire.pod_device(form)
        store = self._cache.pod_devices
        before = store.get(record.key)
        if store.remove(record.key, record.uid) if _is_end(event) else store.put(record):
            self._touch(record.node)
            # its node is part of its identity, but the object may be another one with the same name
            if before is not None and before.node != record.node:
                self._touch(before.node)


def _is_end(event: kopf.RawEvent) -> bool:
    return event["type"] == "DELETED"


def _decode(event: kopf.RawEvent, form: type[F]) -> F | None:
    try:
        return wire.from_event(event["object"], form)
    except msgspec.ValidationError as exc:
        metadata = event["object"].get("metadata", {})
        log.error(
            "object is not understood, and left alone",
            extra={"kind": form.__name__, "object": metadata.get("name"), "problem": str(exc)},
        )
        return None
