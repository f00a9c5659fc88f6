"""Limits of kopf 1.45.2, and the workaround and reason of each.

- It keeps the last handled state, and the progress of handlers, in annotations of the object, and each replica would write them
  into objects of administrators. Here both stay in memory (InMemoryDiffs, NoProgress). So a handler that raises TemporaryError is
  called again at the next change of the object: to be called earlier it would have to be written into the object.
- Its poster and its patches know no leader. Here each of its writes passes the write fence (open_session).
- Handlers of deletions, daemons and timers need a finalizer: objects could not be deleted where the operator was uninstalled.
- It notices a CRD that is installed later only with the right to watch all CRDs. Here it is started again (kopf_run.py).
- It ends at HTTP 410, at an ERROR event other than 410, and at a line without valid JSON. Here it is started again.
- It ends at a response of a proxy in place of the API server's, and at a rejected token. Here both are a broken connection, which
  it retries (open_session).
- It opens a watch again without a pause when the API server ends it at once. Here watches have a budget (open_session).
- It retries a forbidden watch without a sign. Here that is reported at /healthz as for all requests (open_session).
- It decodes and copies objects of any depth by functions that recurse. Here it gets shallow ones (ShallowResponse).
- It kills the process 10 minutes after an end without a stop flag, if that end takes so long (settings).
"""

import asyncio
import copy
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import aiohttp
import kopf
import msgspec
from nodedevice_api import names
from nodedevice_common.decoding import Undecodable, decode, shallow
from nodedevice_common.pacing import TokenBucket
from nodedevice_common.streams import lines
from nodedevice_kube.api_errors import Forbidden, NotLeading, Unauthorized
from yarl import URL

from nodedevice_operator.errors import CredentialsError
from nodedevice_operator.kube.client import USER_AGENT
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

log = logging.getLogger(__name__)

# A watch over which nothing comes is opened again, as load balancers forget connections.
_WATCH_SECONDS: Final = 300
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_WATCHES_PER_SECOND: Final = 1.0
_WATCHES_AT_ONCE: Final = 3
# what kopf retries by itself
_RETRIED: Final = frozenset({_FORBIDDEN, 429})
_SERVER_ERRORS: Final = 500
# what kopf reads from a response without a check; of other paths any object will do
_KEYS: Final = {"/api": "versions", "/apis": "groups"}


class InMemoryDiffs(kopf.DiffBaseStorage):
    """By UID: the object as its handlers saw it last."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, kopf.BodyEssence] = {}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return self._seen.get(str(body.metadata.uid))

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        self._seen[str(body.metadata.uid)] = copy.deepcopy(essence)

    def forget(self, uid: str) -> None:
        self._seen.pop(uid, None)


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress: handlers here end at once."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return copy.deepcopy(essence)


class _Backoffs:
    """Seconds between attempts while the API server is unreachable: without end."""

    def __iter__(self) -> Iterator[float]:
        yield 0.2
        while True:
            yield random.uniform(0.7, 1.0)


def settings(diffs: InMemoryDiffs) -> kopf.OperatorSettings:
    found = kopf.OperatorSettings()
    found.process.ultimate_exiting_timeout = None
    found.networking.error_backoffs = _Backoffs()
    found.scanning.disabled = True
    found.persistence.diffbase_storage = diffs
    found.persistence.progress_storage = NoProgress()
    found.watching.server_timeout = _WATCH_SECONDS
    found.watching.client_timeout = _WATCH_SECONDS + 30
    found.posting.reporting_component = found.posting.reporting_instance = names.OPERATOR_FIELD_MANAGER
    found.posting.event_name_prefix = f"{names.OPERATOR_FIELD_MANAGER}-"
    return found


def open_session(login: Credentials, health: ApiHealth, fence: WriteFence) -> aiohttp.ClientSession:
    """kopf's own connections, in the running event loop, with the credentials and the fence of all other requests."""

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        try:
            access = await login.access()
        except CredentialsError as exc:
            raise aiohttp.ClientConnectionError(str(exc)) from exc
        request.headers.extend(access.headers)
        try:
            response = await handler(request)
        except NotLeading as closed:
            # kopf logs this one, and retries neither an Event nor a patch after it
            raise aiohttp.ClientResponseError(request.request_info, (), message=str(closed)) from closed
        if response.status == _UNAUTHORIZED:
            login.refused(access)
            response.close()
            raise aiohttp.ClientConnectionError(f"HTTP {_UNAUTHORIZED}")
        return response

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(authorize, _reporting_watches(health), _retrying_responses()),
        request_class=_requests(login, fence),
        response_class=ShallowResponse,
    )


def _requests(login: Credentials, fence: WriteFence) -> type[aiohttp.ClientRequest]:
    """Requests with TLS and proxy of the moment at which they are made, that send no byte of a write through a closed fence.

    aiohttp calls `send` when the request has its connection, and `write_bytes` in a task of its own when there is a body; headers
    and body leave in one piece in the second. A check raises before anything is written, and aiohttp closes the connection.
    """

    class Request(aiohttp.ClientRequest):
        def __init__(self, *args: Any, **parameters: Any) -> None:
            options = login.transport_options()
            if "proxy" in options:
                options["proxy"] = URL(options["proxy"])
            super().__init__(*args, **{**parameters, **options})

        def _check(self) -> None:
            if self.method != "GET":
                fence.check(self.method, self.url.path)

        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            self._check()
            return await super().send(conn)

        async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
            try:
                # again: the loop has turned since `send`, and the process may have been stopped meanwhile
                self._check()
            except NotLeading as closed:
                # who waits for the response gets this error
                conn.protocol.set_exception(closed)
                conn.close()
                return
            await super().write_bytes(writer, conn, content_length)

    return Request


def _reporting_watches(health: ApiHealth) -> aiohttp.ClientMiddlewareType:
    """Report each watch that is opened, forbidden or not authorized, and pace them; all other requests and responses pass."""
    budget = TokenBucket(_WATCHES_PER_SECOND, _WATCHES_AT_ONCE, time.monotonic())

    async def report(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        is_watch = "watch" in request.url.query
        if is_watch:
            await asyncio.sleep(budget.reserve(time.monotonic()))
        response = await handler(request)
        if is_watch:
            kind = request.url.name
            if response.status == _UNAUTHORIZED:
                health.failed(Unauthorized("watch", kind, f"HTTP {_UNAUTHORIZED}", _UNAUTHORIZED))
            elif response.status == _FORBIDDEN:
                health.failed(Forbidden("watch", kind, f"HTTP {_FORBIDDEN}", _FORBIDDEN))
            elif response.ok:
                health.succeeded("watch", kind)
        return response

    return report


def _retrying_responses() -> aiohttp.ClientMiddlewareType:
    """Raise ClientConnectionError for a response to a read that no API server sends; logged once for each path."""
    failing: set[str] = set()

    async def check(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await handler(request)
        if request.method != "GET" or "watch" in request.url.query:
            return response
        path = request.url.path
        problem = await _problem(response, path)
        if not problem:
            failing.discard(path)
            return response
        if path not in failing:
            log.warning("API server's response cannot be used; retrying", extra={"path": path, "error": problem})
            failing.add(path)
        response.close()
        raise aiohttp.ClientConnectionError(problem)

    return check


async def _problem(response: aiohttp.ClientResponse, path: str) -> str:
    # every API server has the paths of _KEYS
    is_missing = response.status == _NOT_FOUND and path not in _KEYS
    if is_missing or response.status in (_UNAUTHORIZED, *_RETRIED) or response.status >= _SERVER_ERRORS:
        return ""
    if not response.ok:
        return f"HTTP {response.status}"
    if response.content_type != "application/json":
        return f"it is {response.content_type or 'of no type'}, and not JSON"
    try:
        found = decode(await response.read(), dict[str, msgspec.Raw])
    except Undecodable as exc:
        return f"it is not a JSON object: {exc}"
    key = _KEYS.get(path, "kind")
    return "" if key in found else f"it has no {key}"


class ShallowResponse(aiohttp.ClientResponse):
    """A response that rejects JSON nested too deeply for kopf. Invalid JSON raises the error that kopf expects."""

    async def json(self, **options: Any) -> Any:
        return await super().json(**{**options, "loads": _loads})

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.content = cast(aiohttp.StreamReader, _ShallowLines(self.content))
        return self


class _ShallowLines:
    """The body of a watch, whose lines kopf takes from `iter_chunked`; everything else is the stream's own."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        async for line in lines(self._stream.iter_chunked(size)):
            yield shallow(line) + b"\n"


def _loads(text: str) -> Any:
    try:
        return decode(text, Any)
    except Undecodable as exc:
        raise json.JSONDecodeError(str(exc), "", 0) from exc
