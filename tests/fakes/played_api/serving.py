"""Serves a played API server, or any other responses, on loopback: HTTP or TLS, a thread for each connection."""

import json
import select
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.fakes.played_api.messages import Answer, CutOff, Object, Request


class Served(Protocol):
    """address: set while it is served. connections: counted. date: of each response; "": by the clock."""

    address: str
    connections: int
    date: str

    def answer(self, request: Request) -> Answer: ...


S = TypeVar("S", bound=Served)


@contextmanager
def serving(server: S, tls: ssl.SSLContext | None = None) -> Iterator[S]:
    """Serve it at `server.address`."""
    _, end = listen(server, tls)
    try:
        yield server
    finally:
        end()


def listen(server: Served, tls: ssl.SSLContext | None = None) -> tuple[ThreadingHTTPServer, Callable[[], None]]:
    """Serve it until the returned function is called."""
    is_over = threading.Event()

    class Handler(_Handler):
        played, over = server, is_over

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    # clients that refuse a certificate or end a connection are no errors here
    listening.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
    server.address = f"{'https' if tls else 'http'}://127.0.0.1:{listening.server_port}"
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def end() -> None:
        is_over.set()
        listening.shutdown()
        listening.server_close()

    return listening, end


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    played: Served
    over: threading.Event

    def setup(self) -> None:
        super().setup()
        self.played.connections += 1

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.played.date or super().date_time_string(timestamp)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""

    def _handle(self) -> None:
        answer = self.played.answer(self._request())
        if answer.hold:
            # the client closes its connection, or the test ends
            self.connection.settimeout(None)
            while not self.over.is_set() and self.connection.recv(1):
                pass
            self.close_connection = True
            return
        self.send_response(answer.status)
        headers = {"Content-Type": "application/json", **answer.headers}
        if answer.chunks is None:
            headers["Content-Length"] = str(len(answer.body) + answer.short)
        else:
            headers["Transfer-Encoding"] = "chunked"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.chunks is None:
            self.wfile.write(answer.body)
            self.close_connection = answer.short or answer.ends
        else:
            self._stream(answer.chunks)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _request(self) -> Request:
        parts, length = urlsplit(self.path), int(self.headers.get("Content-Length", "0"))
        body = json.loads(self.rfile.read(length)) if length else None
        lines = tuple((name.lower(), value) for name, value in self.headers.items())
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        peer, certificate = self.client_address[1], _common_name(self.connection)
        return Request(self.command, parts.path, query, dict(lines), body, self.path, peer, certificate, lines)

    def _stream(self, chunks: Iterator[bytes]) -> None:
        self.close_connection = True
        try:
            for chunk in chunks:
                if chunk:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                elif self.over.is_set() or _is_gone(self.connection):
                    return
        except (CutOff, OSError):
            # broken, or longer than the client wants
            return
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = False


def _is_gone(connection: Any) -> bool:
    """A client that waits for events sends nothing: what can be read is its end."""
    return bool(select.select([connection], [], [], 0)[0])


def _common_name(connection: Any) -> str:
    """Of the client's certificate; "" without one."""
    certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    subject = (certificate or {}).get("subject", ())
    return "".join(value for part in subject for key, value in part if key == "commonName")


def kubeconfig(folder: Path, server: str, cluster: Object | None = None, **user: Any) -> Path:
    """A file with one context, `test`, for that server, or that entry of a cluster."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": cluster or {"server": server}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file
