"""/healthz, /readyz and /metrics over HTTP, from a thread of their own.

healthz: the event loop still turns. readyz: plugins are served and the API server has been reached; it says what is missing.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from nodedevice_agent.errors import SettingsError

log = logging.getLogger(__name__)

STUCK_AFTER_SECONDS = 30.0


class Health:
    """What the process says of itself. beat() at least every few seconds from the event loop."""

    def __init__(self, *waits_for: str) -> None:
        self._beaten_at = time.monotonic()
        self._missing = dict.fromkeys(waits_for, "not yet")

    def beat(self) -> None:
        self._beaten_at = time.monotonic()

    def is_there(self, what: str) -> None:
        self._missing.pop(what, None)

    def is_missing(self, what: str, why: str) -> None:
        self._missing[what] = why

    def is_ready(self, what: str) -> bool:
        return what not in self._missing

    def healthz(self) -> str:
        """What is wrong; empty when nothing is."""
        stuck = time.monotonic() - self._beaten_at
        return f"the event loop has not turned for {stuck:.0f} s" if stuck > STUCK_AFTER_SECONDS else ""

    def readyz(self) -> str:
        return "; ".join(f"{what}: {why}" for what, why in sorted(self._missing.items()))


def serve(address: str, health: Health) -> ThreadingHTTPServer:
    """Start serving on host:port (port 0: any). Raises SettingsError."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise SettingsError(f"--http-address {address!r}: must be HOST:PORT, such as 127.0.0.1:9808")
    answers: dict[str, Callable[[], str]] = {"/healthz": health.healthz, "/readyz": health.readyz}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
            elif path in answers:
                wrong = answers[path]()
                self._answer(503 if wrong else 200, "text/plain; charset=utf-8", (wrong or "ok").encode() + b"\n")
            else:
                self._answer(404, "text/plain; charset=utf-8", b"try /healthz, /readyz or /metrics\n")

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes and scrapes are not news."""

    class _Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = _Server((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except (OSError, OverflowError) as exc:
        raise SettingsError(f"--http-address {address}: {getattr(exc, 'strerror', exc)}") from exc
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    log.info("serving http", extra={"address": f"{host}:{server.server_port}"})
    return server
