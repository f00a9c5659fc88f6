"""Responses of the API server: objects, lists and lines of a watch are decoded, and failures of the library become errors of ours.

The library sends requests, and decodes nothing but the API server's errors.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import httpx2
import msgspec
from lightkube import AsyncClient
from lightkube.core import resource as res
from lightkube.core.exceptions import ApiError as LightkubeApiError
from lightkube.core.exceptions import ConfigError, NotReadyError
from lightkube.core.generic_client import BasicRequest
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.skipped import log_skipped

from nodedevice_agent.errors import (
    ApiDisconnected,
    ApiForbidden,
    ApiGone,
    ApiNotFound,
    ApiRefused,
    ApiRequestError,
    ApiSilent,
    ApiUnauthorized,
    ApiUnreachable,
)
from nodedevice_agent.kube import watch_state

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_SECONDS = 10.0
# of the large parts of all objects in a list
MOST_LISTED = 24 * 1024 * 1024


class KubeMetadata(msgspec.Struct, omit_defaults=True):
    """Attribute names are the wire's: lightkube reads some of them."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    deletionTimestamp: str | None = None
    annotations: dict[str, str] | None = None


class KubeObject(msgspec.Struct, omit_defaults=True):
    metadata: KubeMetadata = msgspec.field(default_factory=KubeMetadata)


class LargeObject(KubeObject):
    """Of a kind whose objects have up to a megabyte: they are listed a few at a time, and no more than MOST_LISTED is kept."""

    page_size = 4

    # Each kind has both of its own. Not abstract by abc, as a Struct has a metaclass of its own.
    @property
    def octets(self) -> int:
        raise NotImplementedError

    def lighten(self) -> None:
        """Drop what is large."""
        raise NotImplementedError


# -- objects and lists --------------------------------------------------------------------------------------------------


class _ListMetadata(msgspec.Struct):
    resourceVersion: str | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)


class _Listing(msgspec.Struct, Generic[T]):
    items: list[T]
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


def decode_responses_of(client: AsyncClient) -> None:
    """Have its responses decoded here: the library fails whole at one object, and in ways of its own."""
    inner: Any = client._client

    def handle_response(method: str, response: httpx2.Response, request: BasicRequest) -> Any:
        inner.raise_for_status(response)
        kind: Any = request.response_type
        if method != "list":
            return decode(response.content, kind)
        items, metadata = _listed(response.content, kind)
        if metadata.continue_:
            request.params["continue"] = metadata.continue_
        return bool(metadata.continue_), metadata.resourceVersion, items

    inner.handle_response = handle_response


def _listed(content: bytes, kind: type[T]) -> tuple[list[T], _ListMetadata]:
    """Objects of a page, each by itself where one cannot be decoded. Raises Undecodable."""
    try:
        page: Any = decode(content, _Listing[kind])  # type: ignore[valid-type]  # a form that is made of a value
        return page.items, page.metadata
    except Undecodable:
        raw = decode(content, _Listing[msgspec.Raw])
        return [_decoded(item, kind) for item in raw.items], raw.metadata


def _decoded(content: msgspec.Raw, kind: type[T]) -> T:
    """One of several objects. A kind with `known_by_name` has it in place of one of another form. Raises Undecodable."""
    try:
        return decode(content, kind)
    except Undecodable as exc:
        known_by_name = getattr(kind, "known_by_name", None)
        if known_by_name is None:
            raise
        metadata = decode(content, KubeObject).metadata
        plural = kind._api_info.plural  # type: ignore[attr-defined]  # declared in each kind, and not in their base
        log_skipped(log, plural, metadata.namespace or "", metadata.name, exc)
        found: T = known_by_name(metadata)
        return found


async def lightened(listing: AsyncIterator[T]) -> AsyncIterator[T]:
    """The same objects; large ones beyond what a list may hold without what is large."""
    octets = 0
    async for found in listing:
        if isinstance(found, LargeObject):
            octets += found.octets
            if octets > MOST_LISTED:
                found.lighten()
        yield found


# -- watches ------------------------------------------------------------------------------------------------------------


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""
    reason: str = ""


async def next_line(what: str, found: AsyncIterator[bytes]) -> bytes | None:
    """The next line of a watch; None when there is no more. Raises ApiSilent."""
    seconds = watch_state.SILENCE_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await anext(found, None)
    except TimeoutError as exc:
        raise ApiSilent(what, f"nothing has come for {seconds:.0f} s, not even a bookmark") from exc


def watch_event(what: str, line: bytes, kind: type[res.Resource]) -> tuple[str, Any]:
    """Type and object of a line of a watch.

    Raises Undecodable for what is no such line, ApiRequestError for the server's own errors.
    """
    found = decode(line, _WatchEvent)
    if found.type == "ERROR":
        status = decode(found.object, _Status)
        raise _by_status(what, status.message or status.reason, status.code)
    # the other fields of a bookmark are empty, and some kinds do not allow that
    return found.type, decode(found.object, KubeObject) if found.type == "BOOKMARK" else _decoded(found.object, kind)


# -- errors -------------------------------------------------------------------------------------------------------------


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The library's errors become ours. what: the request, for their texts."""
    try:
        yield
    except LightkubeApiError as exc:
        # an error inside a watch has no response of its own; a proxy's response may have no code in its body
        code = exc.status.code or (exc.response.status_code if exc.response is not None else 0)
        raise _by_status(what, exc.status.message or exc.status.reason or "", code) from exc
    except httpx2.HTTPStatusError as exc:
        raise _by_status(what, exc.response.reason_phrase, exc.response.status_code) from exc
    except (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.ConnectTimeout) as exc:
        raise ApiDisconnected(what, str(exc) or type(exc).__name__) from exc
    except httpx2.TimeoutException as exc:
        raise ApiUnreachable(what, f"timeout: no response in {REQUEST_SECONDS:.0f} s") from exc
    except (Undecodable, NotReadyError) as exc:
        # NotReadyError: a list without a resource version
        raise ApiUnreachable(what, f"cannot decode the response: {exc}") from exc
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as exc:
        # the library fails in these ways on some errors of proxies, such as one without Content-Type
        if isinstance(exc.__context__, httpx2.HTTPStatusError):
            response = exc.__context__.response
            raise _by_status(what, response.reason_phrase, response.status_code) from exc
        raise ApiUnreachable(what, f"cannot decode the response: {exc!r:.200}") from exc
    except (httpx2.HTTPError, OSError, ConfigError, RuntimeError) as exc:
        # RuntimeError: no thread can be started to resolve a host name
        raise ApiUnreachable(what, str(exc) or type(exc).__name__) from exc


# the response to an apply with a field unknown to the CRD, or with too big an object, is 500
_PERMANENT = ("failed to create typed patch object", "request is too large", "trying to send message larger than max")


def _by_status(what: str, detail: str, status: int) -> ApiRequestError:
    kind: type[ApiRequestError]
    match status:
        case 401:
            kind = ApiUnauthorized
        case 403:
            kind = ApiForbidden
        case 404:
            kind = ApiNotFound
        case 410:
            kind = ApiGone
        case _ if status == 429 or (status >= 500 and not any(text in detail for text in _PERMANENT)):
            kind = ApiUnreachable
        case _:
            kind = ApiRefused
    return kind(what, detail, status)
