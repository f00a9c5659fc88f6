"""One request to the API server: in a thread, counted, and with every failure turned into an error of ours.

Knows no kinds of objects. The kubernetes package does the transport; its typed API is left alone, as importing that costs
22 MiB. Errors are told apart by status code and causes, never by their text.
"""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import prometheus_client
import urllib3
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Denied,
    FieldConflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    OverBudget,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteGate, gated_pools
from nodedevice_operator.objects.meta import Status

APPLY: Final = "application/apply-patch+yaml"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"

# As many writes side by side as the reconciler has workers; the API server's own fairness does the rest. Where an answer takes half
# a second, as it does beside 5,000 nodes on a machine too small for them, twenty were 40 changes a second, and 50 came.
THREADS: Final = 48
_MANAGER: Final = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_TERMINATING: Final = "NamespaceTerminating"
_BUDGET: Final = "DisruptionBudget"
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 15.0
# Who asks for more than this is not believed: what it guards would be wrong for as long.
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0


class Client:
    """Requests to one API server. `close` waits for nothing: an answer that is still out is not wanted any more.

    writes: counts write requests by kind, verb and outcome.
    gate: what every write must pass just before it is sent; None lets all pass.
    read_seconds: how long an answer may take.
    """

    def __init__(
        self,
        credentials: Credentials,
        health: ApiHealth,
        writes: prometheus_client.Counter,
        gate: WriteGate | None = None,
        *,
        threads: int = THREADS,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        self._credentials = credentials
        self._health = health
        self._writes = writes
        self._gate = gate
        self._timeouts = (min(_CONNECT_SECONDS, read_seconds), read_seconds)
        # otherwise five for each core of this machine, and whoever finds none begins a connection of its own for each request
        credentials.configuration.connection_pool_maxsize = threads
        self._rest: Any = RESTClientObject(credentials.configuration)
        if gate is not None:
            self._rest.pool_manager.pool_classes_by_scheme = gated_pools(gate)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="api")
        self._in_flight = 0
        self._writes_out = 0
        self._no_write_is_out = asyncio.Event()
        self._no_write_is_out.set()

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
        accept: str = JSON,
    ) -> bytes:
        """Send one request and return the body of the answer.

        what: the kind, or kind/subresource, for errors and metrics.
        body: anything JSON can hold. accept: another form of the answer, such as metadata only.
        Raises ApiError, or the kind of it that fits.
        """
        if verb != "GET" and self._gate is not None:
            self._gate.check(verb, what)
        loop = asyncio.get_running_loop()
        url = f"{self._credentials.server}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        self._set_out(verb, 1)
        try:
            answer = await loop.run_in_executor(self._threads, self._send, verb, what, url, body, content_type, accept)
        except NotLeading:
            raise
        except ApiError as error:
            self._count(verb, what, type(error).__name__)
            self._health.failed(error)
            raise
        finally:
            self._set_out(verb, -1)
        self._count(verb, what, "ok")
        self._health.succeeded(verb, what)
        return answer

    async def settle(self, seconds: float) -> bool:
        """Wait until no write is out any more, but no longer than so many seconds; whether that is so."""
        try:
            async with asyncio.timeout(seconds):
                await self._no_write_is_out.wait()
        except TimeoutError:
            return False
        return True

    def _count(self, verb: str, what: str, outcome: str) -> None:
        if verb != "GET":
            self._writes.labels(kind=what, verb=verb.lower(), outcome=outcome).inc()

    def _set_out(self, verb: str, change: int) -> None:
        self._in_flight += change
        if verb == "GET":
            return
        self._writes_out += change
        if self._writes_out:
            self._no_write_is_out.clear()
        else:
            self._no_write_is_out.set()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, verb: str, what: str, url: str, body: Any, content_type: str, accept: str) -> bytes:
        try:
            headers = {"Accept": accept, "User-Agent": "nodedevice-operator"}
            authorization = self._credentials.authorization()
            if authorization:
                headers["Authorization"] = authorization
            if body is not None:
                headers["Content-Type"] = content_type
            # the package encodes JSON and JSON patches itself, and passes any other type through
            content = body if body is None or "json" in content_type else msgspec.json.encode(body)
            answer = self._rest.request(verb, url, headers=headers, body=content, _request_timeout=self._timeouts)
            data = bytes(answer.read())
        except NotLeading as closed:
            raise NotLeading(verb, what, closed.problem) from closed
        except CredentialsError as exc:
            raise Unreachable(verb, what, str(exc)) from exc
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise Unreachable(verb, what, _short(exc)) from exc
        except ApiException as exc:
            # what the package makes of a TLS connection that ends in the middle; an answer it passes on as it is
            raise Unreachable(verb, what, " ".join(str(exc.reason).split())) from exc
        if 200 <= answer.status <= 299:
            return data
        if answer.status == 401:
            self._credentials.refused()
        raise _refusal(verb, what, int(answer.status), data, answer.headers.get("Retry-After"))


def _refusal(verb: str, what: str, code: int, data: bytes, header: str | None) -> ApiError:
    """The error that an answer other than 2xx stands for. header: its Retry-After."""
    status = Status()
    with contextlib.suppress(msgspec.DecodeError):
        status = msgspec.json.decode(data, type=Status)
    problem = status.message or f"HTTP {code}"
    # an API server that sheds load says it in the header alone
    later = retry_after_seconds(header, status.details.retry_after_seconds)
    if code == 409:
        return Conflict(verb, what, problem, code, field_conflicts(status))
    if code == 429 and any(cause.reason == _BUDGET for cause in status.details.causes):
        return OverBudget(verb, what, problem, code, later)
    if code == 429 or code >= 500:
        return Unavailable(verb, what, problem, code, later)
    if any(cause.reason == _TERMINATING for cause in status.details.causes):
        # nothing is made in a namespace that is going away: to us it is gone
        return NotFound(verb, what, problem, code)
    if code == 403 and status.details.causes:
        # a role that is missing has no causes; a policy gives its own message as one
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
    """When to come back: as the Status in the answer says, or its header; None where neither says it in seconds."""
    if stated is None and header is not None and header.isascii() and header.isdigit():
        stated = float(header[:9])
    return None if stated is None else min(stated, _LONGEST_RETRY_AFTER_SECONDS)


def _short(exc: Exception) -> str:
    """The sentence of an exception without the object addresses that urllib3 puts before it."""
    text = " ".join(str(exc).split())
    return text.rpartition(">: ")[2] or type(exc).__name__
