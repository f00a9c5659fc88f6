"""Serves the page on this machine alone. Everything but its files needs a cookie, which the token in the printed address gives.

GET  /, /page.css, /page.js, /icon.svg  the page, without data
POST /login                            the token, exchanged for a cookie
GET  /api/fleet                        everything that the fleet view shows
GET  /api/events?epoch=&since=         what changes from then on, as server-sent events
GET  /api/{node,device,pod,labels,namespace}?…     one view, read from the API server now

Another page in the same browser cannot use it: the Host header must name this address, an Origin must be this one, and the cookie
is sent by this page alone (SameSite=Strict). Credentials for the cluster stay in this process.
"""

import contextlib
import hmac
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from nodedevice_kube.api_errors import ApiError

from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.page.fleet import Fleet, encoded
from kubectl_nodedevice.page.peers import is_own
from kubectl_nodedevice.page.views import VIEWS

FILES: Final = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js", "/icon.svg": "icon.svg"}
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_MOST_LOGIN_BYTES: Final = 4096
# browsers, and tabs of each
_MOST_STREAMS: Final = 32
# threads at a time; also of other users, who may connect and send nothing
_MOST_CONNECTIONS: Final = 96
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"Too many programs are connected to this page: close some of its tabs, and load it again in a minute.\n"
)
# of a request that the page itself, or a person, has made
_OWN_SITES: Final = ("same-origin", "none", None)
# where Linux shows windows; without them only text browsers would be found
_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
# needs are made again at most so often; a browser gets a sign of life in the same step
_NEEDS_SECONDS: Final = 5.0
# changes within this time are sent together
_BATCH_SECONDS: Final = 0.1
_MOST_LISTENING: Final = 64

View = Callable[[str, Mapping[str, str]], Any]


def asset(name: str) -> bytes:
    return files("kubectl_nodedevice.page").joinpath("static", name).read_bytes()


class PageServer(ThreadingHTTPServer):
    """about: facts of the cluster and of the person, for the head of the page. view: reads one view by name and query."""

    daemon_threads = True
    request_queue_size = _MOST_LISTENING

    def __init__(self, port: int, fleet: Fleet, about: Mapping[str, str], view: View) -> None:
        """port: 0 for any free one. Raises OSError if the port is in use."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.fleet, self.about, self.view = fleet, about, view
        self.token = secrets.token_urlsafe(24)
        # for the browser that this process starts: other users of the machine see its command line
        self._code = secrets.token_urlsafe(24)
        self.streams = threading.BoundedSemaphore(_MOST_STREAMS)
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.ended = threading.Event()
        # when they are made again (monotonic seconds), and their JSON
        self._needs = (0.0, "")
        self._needs_lock = threading.Lock()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def address(self) -> str:
        """The address with the token; a fragment is not sent to any server."""
        return f"{self.origin}/#token={self.token}"

    @property
    def address_once(self) -> str:
        """The same with a token that works once, and for this user's processes alone."""
        return f"{self.origin}/#token={self._code}"

    def accepts(self, token: bytes, peer_port: int) -> bool:
        """Whether the token of a login from that port is valid."""
        if hmac.compare_digest(token, self.token.encode()):
            return True
        with self._needs_lock:
            is_right = hmac.compare_digest(token, self._code.encode()) and is_own(peer_port, self.server_port)
            if is_right:
                self._code = secrets.token_urlsafe(24)
            return is_right

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.send(_FULL, socket.MSG_DONTWAIT)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    @property
    def cookie(self) -> str:
        """A browser sends cookies of one host to each of its ports: each page has a name of its own."""
        return f"nodedevice-{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Ignore errors of connections: a browser may end one at any time."""

    def needs(self, now: float) -> str:
        """The groups of needs as JSON. now: monotonic seconds."""
        with self._needs_lock:
            due, text = self._needs
            if now >= due:
                text = self.fleet.groups(datetime.now(UTC))
                # with very many needs, they are made less often
                took = time.monotonic() - now
                self._needs = now + max(_NEEDS_SECONDS, 10 * took), text
            return text


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    # of one read from the browser; a stream only writes
    timeout = 60
    server_version, sys_version = "nodedevice", ""

    def do_GET(self) -> None:
        try:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST, "this page has no such address")
            return
        if not self._is_from_here():
            self._refuse(HTTPStatus.FORBIDDEN, f"this page is at {self.server.origin}")
        elif parts.path in FILES:
            name = FILES[parts.path]
            self._send(HTTPStatus.OK, asset(name), _TYPES[name.rpartition(".")[2]])
        elif self.headers.get("Sec-Fetch-Site") not in _OWN_SITES:
            # a page at another port of this machine: the browser sends it the cookie, too
            self._refuse(HTTPStatus.FORBIDDEN, f"this page is at {self.server.origin}")
        elif not parts.path.startswith("/api/"):
            self._refuse(HTTPStatus.NOT_FOUND, "this page has no such address")
        elif not self._is_logged_in():
            self._refuse(
                HTTPStatus.UNAUTHORIZED, "open the address that `kubectl nodedevice open` printed, with its token"
            )
        elif parts.path == "/api/fleet":
            self._fleet()
        elif parts.path == "/api/events":
            self._events(query)
        else:
            self._view(parts.path.removeprefix("/api/"), query)

    def do_POST(self) -> None:
        if not self._is_from_here():
            self._refuse(HTTPStatus.FORBIDDEN, f"this page is at {self.server.origin}")
            return
        length = _number(self.headers.get("Content-Length", ""))
        body = self.rfile.read(length) if 0 < length <= _MOST_LOGIN_BYTES else b""
        if self.path != "/login" or not self.server.accepts(body, self.client_address[1]):
            # the rest of the body is unknown
            self.close_connection = True
            self._refuse(
                HTTPStatus.UNAUTHORIZED,
                "the token is of another start, or was used: open the address that was printed last",
            )
            return
        cookie = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.OK, b"{}", "application/json", {"Set-Cookie": cookie})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the error of an invalid request, or of another method."""
        self.close_connection = True
        self._refuse(HTTPStatus(code), "this page has no such request", "follow a link of the page")

    def log_message(self, format: str, *_: Any) -> None:
        """Requests of the browser are not logged."""

    # -- who asks ----------------------------------------------------------------------------------------------------------

    def _is_from_here(self) -> bool:
        """Whether the browser means this address, so that no other name leads here, and no other page asks."""
        port = self.server.server_port
        hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        return self.headers.get("Host", "") in hosts and (origin is None or origin.removeprefix("http://") in hosts)

    def _is_logged_in(self) -> bool:
        """Other programs of this machine have cookies as well, in any form."""
        wanted = f"{self.server.cookie}={self.server.token}".encode()
        sent = self.headers.get("Cookie", "").split(";")
        return any(hmac.compare_digest(each.strip().encode("utf-8", "replace"), wanted) for each in sent)

    # -- responses ---------------------------------------------------------------------------------------------------------

    def _fleet(self) -> None:
        server = self.server
        text = server.fleet.everything(server.about, server.needs(time.monotonic()))
        self._send(HTTPStatus.OK, text.encode(), "application/json")

    def _view(self, name: str, query: Mapping[str, str]) -> None:
        if name not in VIEWS:
            self._refuse(HTTPStatus.NOT_FOUND, "this page has no such address")
            return
        try:
            found = self.server.view(name, query)
        except (CliError, ApiError) as exc:
            self._refuse(HTTPStatus.CONFLICT, exc.problem, exc.remedy)
            return
        except Exception as exc:
            # of one view; the others work on
            problem = f"this view has failed by a mistake of this program ({type(exc).__name__})"
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, problem, "kubectl nodedevice why shows it in a terminal")
            return
        self._send(HTTPStatus.OK, encoded(found).encode(), "application/json")

    def _refuse(self, status: HTTPStatus, problem: str, remedy: str = "") -> None:
        self._send(status, encoded({"problem": problem, "remedy": remedy}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self._begin(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        for name, value in more.items():
            self.send_header(name, value)
        with contextlib.suppress(OSError):
            self.end_headers()

    # -- what changes ------------------------------------------------------------------------------------------------------

    def _events(self, query: Mapping[str, str]) -> None:
        server = self.server
        self.close_connection = True
        if not server.streams.acquire(blocking=False):
            # a script of the page does not see why a stream was refused
            text = encoded({"problem": "too many tabs have this page, so it is not live: close some of them"})
            self._send(HTTPStatus.OK, f"event: full\ndata: {text}\n\n".encode(), "text/event-stream")
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream", {"Connection": "close"})
            for event, text in self._changes(query):
                self.wfile.write(f"event: {event}\ndata: {text}\n\n".encode())
        except OSError:
            # the browser is gone
            pass
        finally:
            server.streams.release()

    def _changes(self, query: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Names and texts of events, until the process ends."""
        fleet = self.server.fleet
        sequence = _number(query.get("since", "")) if query.get("epoch") == fleet.epoch else -1
        needs = sources = ""
        while not self.server.ended.is_set():
            found = fleet.since(sequence) if sequence >= 0 else None
            if found is None:
                yield "reload", "{}"
                return
            sequence, squares, gone = found
            if squares or gone:
                yield "changed", f'{{"sequence":{sequence},"squares":[{",".join(squares)}],"gone":{encoded(gone)}}}'
            fresh = self.server.needs(time.monotonic())
            if fresh != needs:
                needs = fresh
                yield "needs", needs
            # also a sign of life: the page shows when it stays away
            sources = encoded({**fleet.sources(), "isRead": fleet.is_read()})
            yield "sources", sources
            fleet.wait(sequence, _NEEDS_SECONDS)
            self.server.ended.wait(_BATCH_SECONDS)


def _number(text: str) -> int:
    """Return -1 for any other text."""
    return int(text) if text.isdecimal() and len(text) < 20 else -1


def opened_in_browser(address: str) -> bool:
    """Whether a browser was started. Never raises. May take as long as the browser runs."""
    import webbrowser

    if sys.platform == "linux" and not any(map(os.environ.get, _SCREENS)):
        return False
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


def embedded(text: str) -> str:
    """JSON inside HTML: nothing in it ends the element."""
    return text.replace("<", "\\u003c")
