"""Responses of the API server: lines of a watch become events, and failures of the library become errors of ours."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
from lightkube.core import resource as res
from lightkube.core.exceptions import ApiError as LightkubeApiError
from lightkube.core.exceptions import ConfigError, NotReadyError

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

REQUEST_SECONDS = 10.0


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
    """Type and object of a line of a watch. Raises ApiRequestError for the server's own errors, MsgspecError for any other line."""
    found = msgspec.json.decode(line, type=_WatchEvent)
    if found.type == "ERROR":
        status = msgspec.json.decode(found.object, type=_Status)
        raise _by_status(what, status.message or status.reason, status.code)
    # the other fields of a bookmark are empty, and some kinds do not allow that
    return found.type, msgspec.json.decode(found.object, type=KubeObject if found.type == "BOOKMARK" else kind)


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
    except (httpx2.HTTPError, OSError, ConfigError) as exc:
        raise ApiUnreachable(what, str(exc) or type(exc).__name__) from exc
    except (msgspec.MsgspecError, NotReadyError) as exc:
        # NotReadyError: a list without a resource version
        raise ApiUnreachable(what, f"cannot decode the response: {exc}") from exc
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        # the library fails in these ways on some responses of proxies, such as an error without Content-Type
        if isinstance(exc.__context__, httpx2.HTTPStatusError):
            response = exc.__context__.response
            raise _by_status(what, response.reason_phrase, response.status_code) from exc
        raise ApiUnreachable(what, f"cannot decode the response: {exc!r:.200}") from exc


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
