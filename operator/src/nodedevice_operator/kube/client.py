"""Requests to the API server: fenced, counted, and reported to ApiHealth. Each feature owns its requests, by Requests."""

import asyncio
import datetime
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import prometheus_client
from nodedevice_api import names
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Request
from nodedevice_common.api_transport import Transport
from nodedevice_common.streams import lines
from nodedevice_kube.api_errors import ApiError, NotLeading, TooBig
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.paths import JSON, base, target

from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

CORE: Final = base("v1")
OWN: Final = base(names.API_VERSION)
USER_AGENT: Final = "nodedevice-operator"

# As many requests side by side as the work queue has workers; the API server's own fairness does the rest. Fifty changes a second
# where a response takes three are 150.
CONCURRENT_REQUESTS: Final = 160
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0
# The API server sends a bookmark each minute; a longer silence means a dead connection.
_SILENCE_SECONDS: Final = 90.0
_WATCH: Final = {"watch": "true", "allowWatchBookmarks": "true"}


class Client:
    """writes: by kind, verb and outcome. read_seconds: of silence in a response. fence: passed just before a write is sent."""

    def __init__(
        self,
        credentials: Credentials,
        health: ApiHealth,
        writes: prometheus_client.Counter,
        fence: WriteFence | None = None,
        *,
        concurrent: int = CONCURRENT_REQUESTS,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        connect_seconds = min(_CONNECT_SECONDS, read_seconds)
        connections = Connections(
            credentials.settings.server,
            credentials.proxy,
            USER_AGENT,
            most_idle=concurrent,
            # TCP, and a proxy that may never say that it has connected
            connect_seconds=2 * connect_seconds,
        )
        self._transport = Transport(credentials, connections, seconds=read_seconds)
        self._health = health
        self._writes = writes
        self._fence = fence
        # A server that takes no byte of a body is not waited for without end; the response to a write is short.
        self._write_seconds = connect_seconds + 2 * read_seconds
        self._places = asyncio.Semaphore(concurrent)
        self._pending_writes = 0
        self._no_pending_write = asyncio.Event()
        self._no_pending_write.set()

    async def request(
        self,
        verb: str,
        what: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        most_bytes: float = math.inf,
        seconds: float | None = None,
    ) -> bytes:
        """Returns the body of the response. what: the kind, or kind/subresource. accept: another form, such as metadata only.

        most_bytes: of the response. seconds: for the whole response; None: by `read_seconds`. Raises ApiError.
        """
        before_write = None
        if verb != "GET" and self._fence is not None:
            before_write = partial(self._fence.check, verb, what)
            before_write()
        content, headers = None, [("Accept", accept)]
        if body is not None:
            content = msgspec.json.encode(body)
            headers.append(("Content-Type", content_type))
            seconds = self._write_seconds if seconds is None else seconds
        request = Request(verb, target(path, query), tuple(headers), content, before_write)
        self._count_pending(verb, 1)
        try:
            async with self._places:
                data = await self._transport.call(verb, what, request, most_bytes=most_bytes, seconds=seconds)
        except (NotLeading, TooBig):
            raise
        except ApiError as error:
            self._count(verb, what, type(error).__name__)
            self._health.failed(error)
            raise
        finally:
            self._count_pending(verb, -1)
        self._count(verb, what, "ok")
        self._health.succeeded(verb, what)
        return data

    @asynccontextmanager
    async def watch(self, kind: str, path: str, query: Mapping[str, str | int]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens a watch and yields its lines. Raises ApiError if it cannot be opened, WatchInterrupted if it breaks."""
        request = Request("GET", target(path, {**query, **_WATCH}), (("Accept", JSON),))
        try:
            stream = await self._transport.open("watch", kind, request, is_watch=True, seconds=_SILENCE_SECONDS)
        except ApiError as error:
            self._health.failed(error)
            raise
        async with stream:
            self._health.succeeded("watch", kind)
            yield lines(stream.chunks())

    async def settle(self, seconds: float) -> bool:
        """Wait until no write is pending any more, but no longer than so many seconds; whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self._no_pending_write.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await self._transport.close()

    def _count(self, verb: str, what: str, outcome: str) -> None:
        if verb != "GET":
            self._writes.labels(kind=what, verb=verb.lower(), outcome=outcome).inc()

    def _count_pending(self, verb: str, change: int) -> None:
        self._pending_writes += change if verb != "GET" else 0
        if self._pending_writes:
            self._no_pending_write.clear()
        else:
            self._no_pending_write.set()


def now_text(timespec: str = "seconds") -> str:
    """The time in the API's own form: to the second, or as finely as `timespec` of isoformat asks."""
    return f"{datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"
