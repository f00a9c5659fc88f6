"""The port that kube-scheduler calls: one POST per verb, over plain HTTP on loopback or mutual TLS.

Bounded are connections, the bytes of a request and what a client may take of time. Certificates are read again when their files
change: a new connection gets them, and none is refused meanwhile. Decides nothing.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodedevice_common.tls import ServerCertificate

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.connections import Connections
from nodedevice_operator.extender.http_protocol import HttpConnection, Response
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.wire import BadRequest

log = logging.getLogger(__name__)

# for binds that are under way when the process ends
_SHUTDOWN_SECONDS: Final = 1.0
# connections that arrive while the process serves a request
_BACKLOG: Final = 1024
# the names of 5,000 nodes in a few reads
_BUFFER_BYTES: Final = 64 * 1024
_HELP: Final = (
    "nodedevice extender: kube-scheduler sends POST /{verbs}; /healthz and /metrics are at the address httpAddress"
)


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
        self._socket: socket.socket | None = None
        self._certificate: ServerCertificate | None = None
        # in the order in which they came
        self._connections: dict[HttpConnection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

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
        found, port = self._socket.getsockname()[:2]
        return str(found), int(port)

    async def work(self) -> None:
        """Accepts connections and serves them, with the current certificates of the files, until cancelled."""
        assert self._socket is not None
        await Connections(self._socket, self, self._metrics).work()

    async def close(self) -> None:
        """Ends all connections, after a moment for the requests that are under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_SHUTDOWN_SECONDS)
        for task in self._tasks:
            task.cancel()
        for connection in [*self._connections]:
            if connection.transport is not None:
                connection.transport.abort()
        if self._socket is not None:
            self._socket.close()
        # the loop closes their sockets in its next turn
        await asyncio.sleep(0)

    def protocol(self) -> HttpConnection:
        """The protocol of a new connection."""
        return HttpConnection(self, self._buffer)

    def context(self) -> ssl.SSLContext | None:
        return self._certificate.context() if self._certificate is not None else None

    def open_connections(self) -> list[HttpConnection]:
        return list(self._connections)

    async def wait_for_change(self) -> None:
        self._change.clear()
        await self._change.wait()

    def is_allowed(self, transport: asyncio.BaseTransport) -> bool:
        if self._tls is None or not self._tls.names:
            return True
        return bool(self._tls.names & certificate_names(transport.get_extra_info("peercert") or {}))

    # -- of the connections -------------------------------------------------------------------------------------------

    def connected(self, connection: HttpConnection) -> None:
        self._connections[connection] = None

    def lost(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)
        self._change.set()

    def changed(self) -> None:
        self._change.set()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def refusal(self, connection: HttpConnection, method: str, path: str) -> Response | None:
        verb = path.removeprefix("/")
        if connection.transport is not None and not self.is_allowed(connection.transport):
            names = ", ".join(sorted(self._tls.names)) if self._tls is not None else ""
            return _text(403, f"the client certificate has none of the names that are allowed (clientNames): {names}")
        if not verb:
            return _text(200, _HELP.format(verbs=", /".join(self._verbs)))
        if verb not in self._verbs:
            return _text(404, f"no such verb; known are {', '.join(f'/{known}' for known in self._verbs)}")
        if method != "POST":
            return _text(405, f"/{verb} takes a POST of kube-scheduler's extender request")
        return None

    def rejected(self, path: str) -> None:
        verb = path.removeprefix("/")
        if verb in self._verbs:
            self._metrics.count(verb, "bad", 0.0)

    async def respond(self, path: str, body: bytes, began: float) -> Response:
        verb = path.removeprefix("/")
        try:
            content, outcome = await self._verbs[verb](body)
            response = Response(200, content, is_json=True)
        except BadRequest as bad:
            response, outcome = _text(400, str(bad)), "bad"
        except NotActive as why:
            response, outcome = _text(503, str(why)), "standby"
        except Exception:
            log.exception("request failed, which is a bug", extra={"verb": verb})
            response, outcome = _text(500, "the extender failed, which is a bug: report it with its log"), "failed"
        self._metrics.count(verb, outcome, asyncio.get_running_loop().time() - began)
        return response


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


def _text(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode())
