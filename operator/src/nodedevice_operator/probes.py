"""/healthz, /readyz and /metrics, from a thread of their own: they answer even when the event loop does not."""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import prometheus_client
from prometheus_client.exposition import choose_encoder

from nodedevice_operator.errors import SettingsError
from nodedevice_operator.kube.health import Health

# A client that sends nothing does not hold a thread for ever.
_PATIENCE_SECONDS: Final = 10.0

Answer = tuple[HTTPStatus, str, bytes]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def serve(address: tuple[str, int], health: Health, registry: prometheus_client.CollectorRegistry) -> tuple[str, int]:
    """Begin to answer, until the process ends; the address in use.

    Raises SettingsError when the address cannot be had.
    """
    try:
        server = _Server(address, _handler(health, registry))
    except OSError as exc:
        raise SettingsError("httpAddress", f"{address[0]}:{address[1]} cannot be used ({exc.strerror or exc})") from exc
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    host, port = server.server_address[:2]
    return str(host), int(port)


def _handler(health: Health, registry: prometheus_client.CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    routes: dict[str, Callable[[str], Answer]] = {
        "/healthz": lambda _: _check(*health.live()),
        "/readyz": lambda _: _check(*health.ready()),
        "/metrics": lambda accept: _metrics(registry, accept),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            known = f"not found; known are {', '.join(routes)}\n".encode()
            answer = route(self.headers.get("Accept", "")) if route else (HTTPStatus.NOT_FOUND, "text/plain", known)
            code, content_type, body = answer
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a kubelet asks every few seconds."""

    return Handler


def _check(is_good: bool, problems: tuple[str, ...]) -> Answer:
    code = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    lines = ["ok" if is_good else "not ok", *problems]
    return code, "text/plain; charset=utf-8", ("\n".join(lines) + "\n").encode()


def _metrics(registry: prometheus_client.CollectorRegistry, accept: str) -> Answer:
    encode, content_type = choose_encoder(accept)
    return HTTPStatus.OK, content_type, encode(registry)
