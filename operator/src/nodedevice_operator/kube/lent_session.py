"""What becomes of requests that a library sends over a session of ours.

A library that retries a watch without the right to it does so in silence: here its refusals count as ours do. One that gives up at
an answer that is no API server's, as kopf does, gets a broken connection instead, which it retries. And one that decodes and copies
by itself, as kopf does with json.loads and copy.deepcopy, gets nothing that is too deep for that.
"""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, cast

import aiohttp
import msgspec
from nodedevice_common.decoding import Undecodable, decode, shallow
from nodedevice_common.streams import lines

from nodedevice_operator.errors import Forbidden, Unauthorized
from nodedevice_operator.kube.health import ApiHealth

log = logging.getLogger(__name__)

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
# what libraries retry by themselves, or know how to take
_KNOWN: Final = frozenset({401, 403, 429})
_SERVER_ERRORS: Final = 500
# what a library reads from the answer, unasked; of other paths any object will do
_KEYS: Final = {"/api": "versions", "/apis": "groups"}


def reporting_watches(health: ApiHealth) -> aiohttp.ClientMiddlewareType:
    """Report each watch that is opened, forbidden or not ours to ask for; other requests and answers pass."""

    async def report(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await handler(request)
        if "watch" in request.url.query:
            kind = request.url.name
            if response.status == _UNAUTHORIZED:
                health.failed(Unauthorized("watch", kind, f"HTTP {_UNAUTHORIZED}", _UNAUTHORIZED))
            elif response.status == _FORBIDDEN:
                health.failed(Forbidden("watch", kind, f"HTTP {_FORBIDDEN}", _FORBIDDEN))
            elif response.ok:
                health.succeeded("watch", kind)
        return response

    return report


def retrying_answers() -> aiohttp.ClientMiddlewareType:
    """Raise ClientConnectionError for what is no API server's answer to a read, such as a proxy's page; said once for each path."""
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
            log.warning("API server's answer cannot be used; retrying", extra={"path": path, "error": problem})
            failing.add(path)
        response.close()
        raise aiohttp.ClientConnectionError(problem)

    return check


async def _problem(response: aiohttp.ClientResponse, path: str) -> str:
    # those of _KEYS every API server has
    is_missing = response.status == _NOT_FOUND and path not in _KEYS
    if is_missing or response.status in _KNOWN or response.status >= _SERVER_ERRORS:
        return ""
    if not response.ok:
        return f"HTTP {response.status}"
    if response.content_type != "application/json":
        return f"it is {response.content_type or 'of no type'}, and not JSON"
    try:
        found = decode(await response.read(), dict[str, msgspec.Raw])
    except Undecodable as exc:
        return f"it is no JSON object: {exc}"
    key = _KEYS.get(path, "kind")
    return "" if key in found else f"it has no {key}"


class ShallowResponse(aiohttp.ClientResponse):
    """An answer whose JSON is no deeper than the library can take. What is no JSON is the error that the library expects."""

    async def json(self, **options: Any) -> Any:
        return await super().json(**{**options, "loads": _loads})

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.content = cast(aiohttp.StreamReader, _ShallowLines(self.content))
        return self


class _ShallowLines:
    """The body of a watch, whose lines the library takes from `iter_chunked`; everything else is the stream's own."""

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
