"""Requests to the API server, on one aiohttp session: sent, counted, and every failure turned into an error of ours.

Errors are classified by status code and causes, never by their text. No request runs in a thread; only a host name that has to be
resolved does. Each feature owns its requests: a class beside it, on Requests.
"""

import asyncio
import contextlib
import datetime
import math
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import prometheus_client
from nodedevice_api import names
from nodedevice_common import decoding
from nodedevice_common.decoding import Undecodable
from nodedevice_common.streams import lines
from nodedevice_kube.credentials import Access
from yarl import URL

from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Denied,
    FieldConflict,
    Forbidden,
    Invalid,
    NoAnswer,
    NotFound,
    NotLeading,
    OverBudget,
    TooBig,
    Unauthorized,
    Unavailable,
    Unreachable,
    WatchInterrupted,
)
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence, fenced_requests
from nodedevice_operator.objects.meta import Status

T = TypeVar("T")

CORE: Final = "/api/v1"
OWN: Final = f"/apis/{names.API_VERSION}"


APPLY: Final = "application/apply-patch+yaml"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

# As many requests side by side as the work queue has workers; the API server's own fairness does the rest. Fifty changes a second
# where an answer takes three are 150.
CONCURRENT_REQUESTS: Final = 160
_MANAGER: Final = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
# what a request ends with that has no response; RuntimeError: no thread can be started to resolve a host name
_BROKEN: Final = (aiohttp.ClientError, TimeoutError, OSError, CredentialsError, RuntimeError)
_TERMINATING: Final = "NamespaceTerminating"
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_BUDGET: Final = "DisruptionBudget"
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0
# Below the 90 s after which an API server closes an idle connection: it is not used at the moment at which that happens.
_IDLE_SECONDS: Final = 60.0
# The API server sends a bookmark each minute when there is nothing else; silence beyond that is a dead connection.
_SILENCE_SECONDS: Final = 90.0
_WATCH: Final = {"watch": "true", "allowWatchBookmarks": "true"}
# A longer delay is not believed: whatever it is meant to protect would be wrong for as long.
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0

# A compressed response would cost the CPU of both sides, and they are near each other.
HEADERS: Final = {"User-Agent": "nodedevice-operator", "Accept-Encoding": "identity"}


class Client:
    """Requests and watches of one API server. `close` does not wait for responses that are still missing.

    writes: counts write requests by kind, verb and outcome. read_seconds: how long the API server may be silent in a response.
    fence: what every write must pass just before it is sent; None lets all pass.
    """

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
        self._credentials = credentials
        self._health = health
        self._writes = writes
        self._fence = fence
        self._read_seconds = read_seconds
        self._places = asyncio.Semaphore(concurrent)
        self._opened: aiohttp.ClientSession | None = None
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
        """Send one request and return the body of the response.

        what: the kind, or kind/subresource, for errors and metrics.
        body: anything JSON can hold. accept: another form of the response, such as metadata only. most_bytes: of the response.
        seconds: for how long to wait for the whole response; None: by `read_seconds`.
        Raises ApiError, or the kind of it that fits.
        """
        if verb != "GET" and self._fence is not None:
            self._fence.check(verb, what)
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": accept} if content is None else {"Accept": accept, "Content-Type": content_type}
        self._count_pending(verb, 1)
        try:
            async with self._places:
                data = await self._send(verb, what, path, query, content, headers, most_bytes, seconds)
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

    async def watch(self, kind: str, path: str, query: Mapping[str, str | int]) -> AsyncGenerator[bytes]:
        """Lines of a watch of that kind, until the API server ends it.

        Raises ApiError where it cannot be opened, and WatchInterrupted where it is cut, as load balancers do.
        """
        timeout = aiohttp.ClientTimeout(
            connect=2 * _CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
        )
        is_open = False
        try:
            access = await self._credentials.access()
            async with self._session.get(
                self._url(path, {**query, **_WATCH}), headers=access.headers, allow_redirects=False, timeout=timeout
            ) as response:
                if response.status != 200:
                    raise self._refusal("watch", kind, response, await response.read(), access)
                is_open = True
                self._health.succeeded("watch", kind)
                async for line in lines(response.content.iter_any()):
                    yield line
                    del line
        except _BROKEN as exc:
            if is_open:
                raise WatchInterrupted("watch", kind, self._problem(exc)) from exc
            unreachable = Unreachable("watch", kind, self._problem(exc))
            self._health.failed(unreachable)
            raise unreachable from exc
        except ApiError as error:
            if not is_open:
                self._health.failed(error)
            raise

    async def settle(self, seconds: float) -> bool:
        """Wait until no write is pending any more, but no longer than so many seconds; whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self._no_pending_write.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The one session, opened where the event loop runs."""
        if self._opened is None:
            # watches keep connections for themselves, so what is bounded are the requests, not the connections
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)
            requests = fenced_requests(self._fence) if self._fence is not None else aiohttp.ClientRequest
            self._opened = aiohttp.ClientSession(
                connector=connector,
                headers=HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
                request_class=self._credentials.requests(requests),
            )
        return self._opened

    async def _send(
        self,
        verb: str,
        what: str,
        path: str,
        query: Mapping[str, str | int] | None,
        content: bytes | None,
        headers: dict[str, str],
        most_bytes: float,
        seconds: float | None,
    ) -> bytes:
        connect_seconds = min(_CONNECT_SECONDS, self._read_seconds)
        if seconds is None and content is not None:
            # a server that takes no byte of a body is not waited for without end; the response to a write is short
            seconds = connect_seconds + 2 * self._read_seconds
        # that of `sock_connect` ends at the proxy, which may never say that it has connected
        timeout = aiohttp.ClientTimeout(
            total=seconds, connect=2 * connect_seconds, sock_connect=connect_seconds, sock_read=self._read_seconds
        )
        began = time.monotonic()
        try:
            access = await self._credentials.access()
            async with self._session.request(
                verb,
                self._url(path, query),
                data=content,
                headers=[*headers.items(), *access.headers],
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                data = await _read(verb, what, response, most_bytes)
        except NotLeading as closed:
            raise NotLeading(verb, what, closed.problem) from closed
        except TimeoutError as exc:
            waited = time.monotonic() - began
            problem = f"no response within {waited:.1f} s{self._credentials.way}"
            raise NoAnswer(verb, what, problem, waited) from exc
        except _BROKEN as exc:
            raise Unreachable(verb, what, self._problem(exc)) from exc
        if response.status // 100 == 2:
            return data
        raise self._refusal(verb, what, response, data, access)

    def _url(self, path: str, query: Mapping[str, str | int] | None) -> URL:
        # names are quoted already, and no dot in one is to be taken for a step in a path
        return URL(f"{self._credentials.server}{path}{'?' if query else ''}{urlencode(query or {})}", encoded=True)

    def _problem(self, exc: BaseException) -> str:
        return _problem(exc) + ("" if isinstance(exc, CredentialsError) else self._credentials.way)

    def _refusal(self, verb: str, what: str, response: aiohttp.ClientResponse, data: bytes, access: Access) -> ApiError:
        if response.status == 401:
            self._credentials.refused(access)
        return refusal(verb, what, response.status, data, response.headers.get("Retry-After"))

    def _count(self, verb: str, what: str, outcome: str) -> None:
        if verb != "GET":
            self._writes.labels(kind=what, verb=verb.lower(), outcome=outcome).inc()

    def _count_pending(self, verb: str, change: int) -> None:
        self._pending_writes += change if verb != "GET" else 0
        if self._pending_writes:
            self._no_pending_write.clear()
        else:
            self._no_pending_write.set()


def path_segment(name: str) -> str:
    """A name as one segment of a path, whatever characters an agent has put into it."""
    return quote(name, safe="")


def now_text(timespec: str = "seconds") -> str:
    """The time in the API's own form: to the second, or as finely as `timespec` of isoformat asks."""
    return f"{datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"


async def _read(verb: str, what: str, response: aiohttp.ClientResponse, most_bytes: float) -> bytes:
    """The body. Raises TooBig as soon as it is longer."""
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most_bytes:
            raise TooBig(verb, what, f"the response has more than {most_bytes} bytes", response.status)
    return bytes(data)


def refusal(verb: str, what: str, code: int, data: bytes, header: str | None) -> ApiError:
    """The error that an answer other than 2xx stands for. header: its Retry-After."""
    status = Status()
    with contextlib.suppress(Undecodable):
        status = decoding.decode(data, Status)
    problem = status.message or f"HTTP {code}"
    # an API server that sheds load has it in the header alone
    later = retry_after_seconds(header, status.details.retry_after_seconds)
    if code == 409:
        return Conflict(verb, what, problem, code, causes=field_conflicts(status))
    if code == 429 and any(cause.reason == _BUDGET for cause in status.details.causes):
        return OverBudget(verb, what, problem, code, later)
    if code == 429 or code >= 500:
        return Unavailable(verb, what, problem, code, later)
    if any(cause.reason == _TERMINATING for cause in status.details.causes):
        # nothing is made in a namespace that is going away: to us it is gone
        return NotFound(verb, what, problem, code)
    if code == 403 and (status.details.causes or (verb in _WRITES and status.message and not status.details.kind)):
        # a role that is missing has no causes, and names the kind; a policy gives its own message as one, a webhook has neither
        return Denied(verb, what, problem, code)
    kind = {401: Unauthorized, 403: Forbidden, 404: NotFound}.get(code, Invalid)
    return kind(verb, what, problem, code)


def field_conflicts(status: Status) -> tuple[FieldConflict, ...]:
    """Who owns what, from the causes of a refused server-side apply."""
    found = ((cause, _MANAGER.match(cause.message)) for cause in status.details.causes)
    return tuple(
        FieldConflict(match[1] if match else "", cause.field)
        for cause, match in found
        if cause.reason == "FieldManagerConflict"
    )


def retry_after_seconds(header: str | None, stated: float | None = None) -> float | None:
    """When to come back: from the Status in the answer, or its header; None where neither has it in seconds."""
    if stated is None and header is not None and header.isascii() and header.isdigit():
        stated = float(header[:9])
    return None if stated is None else min(stated, _LONGEST_RETRY_AFTER_SECONDS)


def _problem(exc: BaseException) -> str:
    """What went wrong, in the system's words: without the addresses that aiohttp puts around them, and never empty."""
    system = exc.os_error if isinstance(exc, aiohttp.ClientConnectorError) else exc
    if isinstance(system, OSError) and system.errno and system.errno > 0 and not isinstance(system, ssl.SSLError):
        return os.strerror(system.errno)
    return " ".join(str(exc).split()) or type(exc).__name__
