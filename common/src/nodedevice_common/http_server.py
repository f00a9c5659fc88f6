"""Serves /healthz, /readyz and /metrics in a thread of its own, so that it responds while the event loop hangs.

Any pod may connect, so connections, their time, and the bytes of a request are bounded.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal, cast

from msgspec import Struct
from nodedevice_kube.masking import masked
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from nodedevice_common import threads
from nodedevice_common.metrics_authorization import Create, MetricsAccess
from nodedevice_common.peer_places import PeerPlaces
from nodedevice_common.text import clean
from nodedevice_common.tls import ServerCertificate

log = logging.getLogger(__name__)

# It is a second series for each counter, which adds up at thousands of nodes. The library gives the function no types.
cast(Callable[[], None], disable_created_metrics)()

HANG_SECONDS = 30.0
MAX_CONNECTIONS: Final = 64
# of one connection, from accept to close
CONNECTION_SECONDS: Final = 30.0
REQUEST_BYTES: Final = 16 * 1024
_ACCEPT_PAUSE_SECONDS: Final = 0.5
# the kernel has no IPv6, or it is disabled
_NO_IPV6: Final = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}

# whether all is well, and the text of the response
Check = Callable[[], tuple[bool, str]]


class Heartbeat:
    """Notices a hanging event loop. The loop calls beat() every few seconds; other threads read `problem`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.beat()

    def beat(self) -> None:
        self._beaten_at = self._clock()

    def problem(self) -> str:
        """Return "" while the loop turns."""
        still = self._clock() - self._beaten_at
        return f"the event loop has not turned for {still:.0f} s" if still > HANG_SECONDS else ""


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT. An IPv6 address stands in brackets; no host means all addresses. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(address)
    return host.removeprefix("[").removesuffix("]"), int(port)


Authentication = Literal["none", "token"]


class Protection(Struct, frozen=True):
    """certificate: None for plain HTTP. access: to /metrics; None for everybody."""

    certificate: ServerCertificate | None = None
    access: MetricsAccess | None = None


OPEN: Final = Protection()


def protection(authentication: Authentication, chain: str, key: str, create: Create) -> Protection:
    """Build it from the settings metricsAuthentication, tlsCertificate and tlsKey, on the event loop. Raises ValueError."""
    if bool(chain) != bool(key):
        raise ValueError("tlsCertificate and tlsKey belong together: set both or none")
    if authentication == "token" and not chain:
        raise ValueError(
            "metricsAuthentication: token needs tlsCertificate and tlsKey, or the tokens would be sent in clear text"
        )
    try:
        certificate = ServerCertificate(chain, key) if chain else None
    except OSError as exc:
        raise ValueError(f"tlsCertificate {chain} and tlsKey {key} cannot be used: {exc}") from exc
    access = MetricsAccess(create, asyncio.get_running_loop()) if authentication == "token" else None
    return Protection(certificate, access)


def serve(
    address: tuple[str, int],
    checks: Mapping[str, Check],
    registry: CollectorRegistry,
    protection: Protection = OPEN,
) -> "BoundedServer":
    """Serve until the process ends or the server is shut down. checks: by path, without authentication.

    address: no host means all addresses of IPv4 and, if possible, IPv6; port 0 takes a free one. Raises OSError.
    """
    server = _bound(address, _handler(checks, registry, protection.access))
    server.certificate = protection.certificate
    try:
        threads.start(server.serve_forever, "http")
    except OSError:
        server.server_close()
        raise
    return server


def _bound(address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> "BoundedServer":
    host, port = address
    if host:
        return (_Ipv6Server if ":" in host else BoundedServer)(address, handler)
    try:
        return _DualStackServer(("::", port), handler)
    except OSError as exc:
        if exc.errno not in _NO_IPV6:
            raise
        return BoundedServer(("0.0.0.0", port), handler)


class BoundedServer(ThreadingHTTPServer):
    """A thread for each connection. Beyond MAX_CONNECTIONS the address with the most connections loses its oldest one."""

    daemon_threads = True
    block_on_close = False
    # with the default of five the kernel drops first packets, which clients repeat after a second
    request_queue_size = 2 * MAX_CONNECTIONS
    connection_seconds = CONNECTION_SECONDS
    # why connections cannot be accepted, as logged
    _problem = ""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        # time of accept, oldest first
        self._accepted_at: dict[socket.socket, float] = {}
        self._places: PeerPlaces[socket.socket] = PeerPlaces(MAX_CONNECTIONS, MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self.certificate: ServerCertificate | None = None
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Raises OSError, after a pause, while a resource such as file descriptors runs out."""
        try:
            connection, address = super().get_request()
        except BlockingIOError:
            raise
        except OSError as exc:
            self._not_taken(exc)
            raise
        if self.certificate is None:
            return connection, address
        # the thread of the connection does the handshake at its first read
        context = self.certificate.context()
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def _not_taken(self, problem: OSError) -> None:
        error = str(problem)
        if error != self._problem:
            extra = {"error": error, "retry_in_seconds": _ACCEPT_PAUSE_SECONDS}
            log.warning("cannot accept connections of probes and metrics", extra=extra)
        self._problem = error
        time.sleep(_ACCEPT_PAUSE_SECONDS)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._accepted_at[request] = time.monotonic()
            gives_way = self._places.add(request, client_address[0])
            if gives_way is not None:
                self._hang_up(gives_way)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self._not_taken(OSError(errno.EAGAIN, threads.NO_THREAD))
            raise
        self._problem = ""

    def service_actions(self) -> None:
        """Runs after each accept, and twice a second."""
        latest = time.monotonic() - self.connection_seconds
        with self._lock:
            for connection in [each for each, at in self._accepted_at.items() if at < latest]:
                self._hang_up(connection)

    def _hang_up(self, connection: socket.socket) -> None:
        """End the wait of the connection's thread, which then closes it."""
        del self._accepted_at[connection]
        self._places.remove(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._accepted_at.pop(request, None)
            self._places.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client is gone, or was cut off."""


class _Ipv6Server(BoundedServer):
    address_family = socket.AF_INET6


class _DualStackServer(_Ipv6Server):
    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Request:
    """The lines of a request. Bytes beyond the limit are cut off, which a GET does not need."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = REQUEST_BYTES
        self.close = file.close

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(min(limit, self._left))
        self._left -= len(line)
        return line


_REFUSED: Final = {
    HTTPStatus.UNAUTHORIZED: "a bearer token that the API server accepts is needed",
    HTTPStatus.FORBIDDEN: "this account may not read metrics: grant it get on the nonResourceURL /metrics",
    HTTPStatus.TOO_MANY_REQUESTS: "too many unknown tokens; try again in a second",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API server does not authenticate this token; its state is at /healthz",
}


def _handler(
    checks: Mapping[str, Check], registry: CollectorRegistry, access: MetricsAccess | None
) -> type[BaseHTTPRequestHandler]:
    def answer(path: str, accept: str, authorization: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body."""
        if path == "/metrics":
            status = access.check(authorization) if access is not None else HTTPStatus.OK
            if status is HTTPStatus.OK:
                encode, content_type = choose_encoder(accept)
                return status, content_type, encode(registry)
            text = _REFUSED[status]
        elif path in checks:
            is_good, text = checks[path]()
            status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        else:
            status, text = HTTPStatus.NOT_FOUND, f"not found; known are {', '.join((*checks, '/metrics'))}"
        # a response that cannot be sent would fail a probe
        return status, "text/plain; charset=utf-8", f"{clean(masked(text))}\n".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.rfile: Any = _Request(self.rfile)

        def do_GET(self) -> None:
            headers = (self.headers.get(name, "") for name in ("Accept", "Authorization"))
            status, content_type, body = answer(self.path.partition("?")[0], *headers)
            self.send_response(status)
            if status is HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, as a kubelet probes every few seconds."""

    return Handler
