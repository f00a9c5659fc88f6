"""How both programs are observed: their logs on stderr, and /healthz, /readyz and /metrics over HTTP.

A line of the log is an event: a constant text and its fields, as text for people or JSON for collectors. HTTP is answered from a
thread of its own, even when the event loop hangs.
"""

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, cast

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_OURS = "nodedevice_"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def set_up_logs(level: LogLevel, log_format: LogFormat, libraries: Mapping[str, int]) -> None:
    """Send every log line of the process to stderr. libraries: the lowest level that is logged, by logger of a library."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, lowest in libraries.items():
        logging.getLogger(name).setLevel(lowest)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    if not record.name.startswith(_OURS):
        return {}  # kopf attaches its whole settings to each of its records
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    """A word as it is; everything else as JSON, so that a line stays one line."""
    is_word = isinstance(value, str) and value and value.isprintable() and not set(value) & {" ", '"'}
    return str(value) if is_word else json.dumps(value, default=str)


# -- HTTP ---------------------------------------------------------------------------------------------------------------

# an unneeded second series for each counter: at thousands of nodes they add up; the library gives the function no types
cast(Callable[[], None], disable_created_metrics)()

HANG_SECONDS = 30.0
# A client that sends nothing does not keep a thread for ever.
_CLIENT_TIMEOUT_SECONDS = 10.0

# whether all is well, and the text of the answer
Check = Callable[[], tuple[bool, str]]


class Heartbeat:
    """Whether the event loop still turns. beat() is called from it every few seconds; `problem` is read by another thread."""

    def __init__(self) -> None:
        self.beat()

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
    def answer(path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type, body."""
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return HTTPStatus.OK, content_type, encode(registry)
        if path in checks:
            is_good, text = checks[path]()
            status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        else:
            status, text = HTTPStatus.NOT_FOUND, f"not found; known are {', '.join((*checks, '/metrics'))}"
        return status, "text/plain; charset=utf-8", f"{text}\n".encode()

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
