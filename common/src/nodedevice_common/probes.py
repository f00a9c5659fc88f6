"""/healthz, /readyz and /metrics over HTTP, from a thread of their own: they answer even when the event loop hangs."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

HANG_SECONDS = 30.0
# A client that sends nothing does not keep a thread for ever.
_CLIENT_TIMEOUT_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"

# whether all is well, and the text of the answer
Check = Callable[[], tuple[bool, str]]
# status, content type, body
_Answer = tuple[HTTPStatus, str, bytes]


class Heartbeat:
    """Whether the event loop still turns. beat() is called from it every few seconds; `problem` is read by another thread."""

    def __init__(self) -> None:
        self._beaten_at = time.monotonic()

    def beat(self) -> None:
        self._beaten_at = time.monotonic()

    def problem(self) -> str:
        """What is wrong; empty when nothing is."""
        still = time.monotonic() - self._beaten_at
        return f"the event loop has not turned for {still:.0f} s" if still > HANG_SECONDS else ""


class ProbeServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class _Ipv6Server(ProbeServer):
    address_family = socket.AF_INET6


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, where an IPv6 address stands in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(address)
    return host.removeprefix("[").removesuffix("]"), int(port)


def serve(address: tuple[str, int], checks: Mapping[str, Check], registry: CollectorRegistry) -> ProbeServer:
    """Answer until the process ends or the server is shut down; port 0 takes a free one. checks: by path.

    Raises OSError when the address cannot be used.
    """
    server = (_Ipv6Server if ":" in address[0] else ProbeServer)(address, _handler(checks, registry))
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def _handler(checks: Mapping[str, Check], registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    unknown = f"not found; known are {', '.join((*checks, '/metrics'))}\n".encode()

    def answer(path: str, accept: str) -> _Answer:
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return HTTPStatus.OK, content_type, encode(registry)
        if path not in checks:
            return HTTPStatus.NOT_FOUND, _TEXT, unknown
        is_good, text = checks[path]()
        return HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{text}\n".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _CLIENT_TIMEOUT_SECONDS

        def do_GET(self) -> None:
            status, content_type, body = answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a kubelet asks every few seconds."""

    return Handler
