"""Requests to a played API server, and its responses."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Object = dict[str, Any]

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True)
class Request:
    """path: without its query. headers: names in lower case. target: path and query, as sent. peer: the client's port.

    certificate: the common name in the client's certificate. header_lines: all headers, also those of equal names.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any = None
    target: str = ""
    peer: int = 0
    certificate: str = ""
    header_lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """hold: the connection stays silent until the client gives up; short: the body ends before it is whole.

    ends: the connection ends after it, unannounced. chunks: sent one by one instead of the body; an empty one only checks
    whether the client is still connected.
    """

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False
    short: bool = False
    ends: bool = False
    chunks: Iterator[bytes] | None = None


class CutOff(Exception):
    """Raised by chunks: the connection breaks."""


def encode(content: Any) -> bytes:
    """JSON as the API server writes it: compact, with <, > and & escaped."""
    text = json.dumps(content, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


def found(content: Any, code: int = 200) -> Answer:
    return Answer(code, encode(content))


def failure(code: int, message: str = "", reason: str = "", **details: Any) -> Object:
    """A Status of a failed request."""
    fields: Object = {"message": message, "reason": reason or _REASONS.get(code, ""), "code": code}
    fields |= {"details": details} if details else {}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **fields}


def status(code: int, message: str = "", reason: str = "", **details: Any) -> Answer:
    """A failed request."""
    return found(failure(code, message, reason, **details), code)
