"""One request to the API server: in a thread, counted, and with every failure turned into an error of ours.

Knows no kinds of objects. The kubernetes package does the transport; its typed API is left alone, as importing that costs
22 MiB. Errors are told apart by status code and causes, never by their text.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client.rest import RESTClientObject

from nodedevice_operator.edges import wire, wire_forms
from nodedevice_operator.edges.credentials import Credentials
from nodedevice_operator.edges.health import ApiHealth
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Forbidden,
    Invalid,
    NotFound,
    Unavailable,
    Unreachable,
)

APPLY: Final = "application/apply-patch+yaml"
JSON: Final = "application/json"

# As many writes side by side as the reconciler has workers; the API server's own fairness does the rest.
THREADS: Final = 8
_TERMINATING: Final = "NamespaceTerminating"
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0


class Client:
    """Requests to one API server. `close` waits for nothing: an answer that is still out is not wanted any more."""

    def __init__(self, credentials: Credentials, health: ApiHealth, metrics: Metrics) -> None:
        self._credentials = credentials
        self._health = health
        self._metrics = metrics
        self._rest: Any = RESTClientObject(credentials.configuration)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="api")
        self._in_flight = 0

    @property
    def is_busy(self) -> bool:
        """Whether a request is still out."""
        return self._in_flight > 0

    async def request(
        self,
        verb: str,
        what: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send one request and return the body of the answer.

        what: the kind, or kind/subresource, for errors and metrics.
        body: anything JSON can hold.
        Raises ApiError, or the kind of it that fits.
        """
        if verb != "GET":
            self._metrics.writes.labels(kind=what, verb=verb.lower()).inc()
        loop = asyncio.get_running_loop()
        url = f"{self._credentials.server}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        self._in_flight += 1
        try:
            answer = await loop.run_in_executor(self._threads, self._send, verb, what, url, body, content_type)
        except ApiError as error:
            self._health.failed(error)
            raise
        finally:
            self._in_flight -= 1
        self._health.succeeded(verb, what)
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, verb: str, what: str, url: str, body: Any, content_type: str) -> bytes:
        try:
            headers = {"Accept": JSON, "User-Agent": "nodedevice-operator"}
            authorization = self._credentials.authorization()
            if authorization:
                headers["Authorization"] = authorization
            if body is not None:
                headers["Content-Type"] = content_type
            # the package encodes JSON itself, and passes any other type through
            content = body if body is None or content_type == JSON else msgspec.json.encode(body)
            answer = self._rest.request(
                verb, url, headers=headers, body=content, _request_timeout=(_CONNECT_SECONDS, _READ_SECONDS)
            )
            data = bytes(answer.read())
        except CredentialsError as exc:
            raise Unreachable(verb, what, str(exc)) from exc
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise Unreachable(verb, what, _short(exc)) from exc
        if 200 <= answer.status <= 299:
            return data
        if answer.status == 401:
            self._credentials.refused()
        raise _refusal(verb, what, int(answer.status), data)


def _refusal(verb: str, what: str, code: int, data: bytes) -> ApiError:
    """The error that an answer other than 2xx stands for."""
    status = wire_forms.Status()
    with contextlib.suppress(msgspec.DecodeError):
        status = msgspec.json.decode(data, type=wire_forms.Status)
    problem = status.message or f"HTTP {code}"
    if code == 409:
        return Conflict(verb, what, problem, code, wire.field_conflicts(status))
    if code == 429 or code >= 500:
        return Unavailable(verb, what, problem, code, status.details.retry_after_seconds)
    if any(cause.reason == _TERMINATING for cause in status.details.causes):
        # nothing is made in a namespace that is going away: to us it is gone
        return NotFound(verb, what, problem, code)
    kind = {401: Forbidden, 403: Forbidden, 404: NotFound}.get(code, Invalid)
    return kind(verb, what, problem, code)


def _short(exc: Exception) -> str:
    """The sentence of an exception without the object addresses that urllib3 puts before it."""
    text = " ".join(str(exc).split())
    return text.rpartition(">: ")[2] or type(exc).__name__
