"""The port that kube-scheduler calls: one POST per verb, over plain HTTP on loopback or mutual TLS.

Bounded are connections, the bytes of a request and what a client may take of time. Certificates are read again when their files
change: a new connection gets them, and none is refused meanwhile. Decides nothing.
"""

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from nodedevice_common.tls import ServerCertificate

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.connections import Connections
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.wire import BadRequest

log = logging.getLogger(__name__)

# 5,000 nodes by name are 0.2 MB; 5,000 whole Nodes, for a scheduler that is not nodeCacheCapable, some 40 times as much
MOST_REQUEST_BYTES: Final = 16 * 1024 * 1024
_TOO_LONG: Final = (
    f"the request is longer than {MOST_REQUEST_BYTES} bytes; set nodeCacheCapable: true for this extender\n".encode()
)
_BODY_SECONDS: Final = 10.0
# of a connection without a request; longer than the 90 s after which kube-scheduler closes it itself
_IDLE_SECONDS: Final = 120.0
# to drain a request after an early response, so that its sender reads the response
_LINGERING_SECONDS: Final = 1.0
# for binds that are under way when the process ends
_SHUTDOWN_SECONDS: Final = 1.0
# connections that arrive while the process serves a request
_BACKLOG: Final = 1024
_JSON: Final = "application/json"
_HELP: Final = (
    "nodedevice extender: kube-scheduler sends POST /{verbs}; /healthz and /metrics are at the address httpAddress"
)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether clients did not cause it: aiohttp logs a traceback for each that disconnects or sends invalid HTTP."""
    return not (record.exc_info and isinstance(record.exc_info[1], (ConnectionError, HttpProcessingError)))


_http_log: Final = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_is_ours)


class NotActive(Exception):
    """This process does not serve requests now; the text says why."""


# Takes the body of a request; returns the body of the response, and its outcome for the metrics. Raises BadRequest or NotActive.
Verb = Callable[[bytes], Awaitable[tuple[bytes, str]]]


@dataclass(frozen=True)
class Tls:
    """Files in PEM, all of them or none. names: allowed names of client certificates; empty allows all of that authority."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    names: frozenset[str] = frozenset()


class Server:
    def __init__(
        self, address: tuple[str, int], tls: Tls | None, verbs: Mapping[str, Verb], metrics: ExtenderMetrics
    ) -> None:
        self._address = address
        self._tls = tls
        self._verbs = verbs
        self._metrics = metrics
        self._http = web.Server(
            self._handle,
            access_log=None,
            logger=_http_log,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
        )
        self._runner = web.ServerRunner(self._http, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._socket: socket.socket | None = None
        self._certificate: ServerCertificate | None = None
        # connections with a request under way
        self._busy: set[asyncio.BaseTransport] = set()

    async def start(self) -> tuple[str, int]:
        """Listens; returns the address in use. Raises OperatorSettingsError when it or a certificate cannot be used."""
        host, port = self._address
        try:
            self._socket = _listening(host, port)
        except OSError as exc:
            raise OperatorSettingsError("address", f"{host}:{port} cannot be used ({_problem(exc)})") from exc
        tls = self._tls
        try:
            if tls is not None:
                self._certificate = ServerCertificate(tls.certificate, tls.key, tls.client_ca)
        except OSError as exc:
            await self.close()
            assert tls is not None
            raise OperatorSettingsError(
                "tlsCertificate", f"{tls.certificate}, {tls.key} and {tls.client_ca} cannot be used: {exc}"
            ) from exc
        await self._runner.setup()
        found, port = self._socket.getsockname()[:2]
        return str(found), int(port)

    async def work(self) -> None:
        """Accepts connections and serves them, with the current certificates of the files, until cancelled."""
        assert self._socket is not None
        await Connections(self._socket, self, self._metrics).work()

    async def close(self) -> None:
        await self._runner.cleanup()
        if self._socket is not None:
            self._socket.close()

    def http(self) -> web.Server:
        return self._http

    def context(self) -> ssl.SSLContext | None:
        return self._certificate.context() if self._certificate is not None else None

    def is_busy(self, transport: asyncio.BaseTransport) -> bool:
        return transport in self._busy

    def is_allowed(self, transport: asyncio.BaseTransport) -> bool:
        if self._tls is None or not self._tls.names:
            return True
        return bool(self._tls.names & certificate_names(transport.get_extra_info("peercert") or {}))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        self._busy.add(transport)
        try:
            return await self._answered(request)
        finally:
            self._busy.discard(transport)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = request.path.removeprefix("/")
        refusal = self._refusal(request, verb)
        if refusal is not None:
            return refusal
        began = time.monotonic()
        status, body, outcome = await self._answer(request, verb)
        self._metrics.requests.labels(verb=verb, outcome=outcome).inc()
        self._metrics.seconds.labels(verb=verb).observe(time.monotonic() - began)
        response = web.Response(status=status, body=body, content_type=_JSON if status == 200 else "text/plain")
        if status in (web.HTTPRequestEntityTooLarge.status_code, web.HTTPRequestTimeout.status_code):
            # the rest of the request is not read
            response.force_close()
        return response

    def _refusal(self, request: web.BaseRequest, verb: str) -> web.Response | None:
        """The response to a request that is refused without its body."""
        if self._tls is not None and request.transport is not None and not self.is_allowed(request.transport):
            names = ", ".join(sorted(self._tls.names))
            return _text(403, f"the client certificate has none of the names that are allowed (clientNames): {names}")
        if not verb:
            return _text(200, _HELP.format(verbs=", /".join(self._verbs)))
        if verb not in self._verbs:
            return _text(404, f"no such verb; known are {', '.join(f'/{known}' for known in self._verbs)}")
        if request.method != "POST":
            return _text(405, f"/{verb} takes a POST of kube-scheduler's extender request")
        return None

    async def _answer(self, request: web.BaseRequest, verb: str) -> tuple[int, bytes, str]:
        """Status, body and outcome."""
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await _body(request)
        except TimeoutError:
            return 408, f"the request did not arrive within {_BODY_SECONDS:g} s\n".encode(), "bad"
        if body is None:
            return 413, _TOO_LONG, "bad"
        try:
            answer, outcome = await self._verbs[verb](body)
        except BadRequest as bad:
            return 400, f"{bad}\n".encode(), "bad"
        except NotActive as why:
            return 503, f"{why}\n".encode(), "standby"
        except Exception:
            log.exception("request failed, which is a bug", extra={"verb": verb})
            return 500, b"the extender failed, which is a bug: report it with its log\n", "failed"
        return 200, answer, outcome


async def _body(request: web.BaseRequest) -> bytes | None:
    """Reads the body; None as soon as it exceeds the limit."""
    data = bytearray()
    if (request.content_length or 0) > MOST_REQUEST_BYTES:
        return None
    async for chunk in request.content.iter_any():
        data += chunk
        if len(data) > MOST_REQUEST_BYTES:
            return None
    return bytes(data)


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket; without a host on all addresses of IPv4 and, if available, IPv6."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Common name and alternative names of a certificate, as the ssl module gives it."""
    common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return frozenset(common | {value for _, value in certificate.get("subjectAltName", ())})


def _problem(exc: OSError) -> str:
    """The system's message, without the address that Python adds."""
    return os.strerror(exc.errno) if exc.errno and exc.errno > 0 else str(exc)


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")
