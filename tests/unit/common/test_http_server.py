"""What any pod can do to the HTTP server of both programs: connect often, stay, drip, send without end. Others are answered."""

import contextlib
import errno
import socket
import socketserver
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest
from nodedevice_common import http_server
from nodedevice_common.http_server import (
    MAX_CONNECTIONS,
    Authentication,
    BoundedServer,
    Check,
    Heartbeat,
    Protection,
    parse_address,
    protection,
    serve,
)
from nodedevice_common.metrics_authorization import MetricsAccess
from prometheus_client import CollectorRegistry

from tests.cluster.waiting import wait_until

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks every hundredth of a second, not twice a second, whether a connection is too old, or it is to shut down."""
    serve_forever = BoundedServer.serve_forever
    monkeypatch.setattr(BoundedServer, "serve_forever", lambda self: serve_forever(self, 0.01))


Serve = Callable[..., BoundedServer]


@pytest.fixture
def serving() -> Iterator[Serve]:
    """Makes servers, which end with the test."""
    servers: list[BoundedServer] = []

    def made(host: str = "127.0.0.1", checks: Mapping[str, Check] | None = None, **more: Any) -> BoundedServer:
        checks = {"/healthz": lambda: (True, "ok")} if checks is None else checks
        servers.append(serve((host, 0), checks, CollectorRegistry(), **more))
        return servers[-1]

    yield made
    for each in servers:
        each.shutdown()
        each.server_close()


@pytest.fixture
def server(serving: Serve) -> BoundedServer:
    return serving()


def connected(server: BoundedServer, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=60, source_address=(source, 0))


def answer(server: BoundedServer, host: str = "127.0.0.1") -> str:
    with urllib.request.urlopen(f"http://{host}:{server.server_port}/healthz", timeout=60) as got:
        return str(got.read().decode())


def is_closed(connection: socket.socket) -> bool:
    """As far as it has come over the connection by now."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_idle_connections_keep_nobody_out(server: BoundedServer) -> None:
    before = threading.active_count()
    idle = [connected(server) for _ in range(4 * MAX_CONNECTIONS)]
    assert answer(server) == "ok\n"
    assert "http" in {thread.name for thread in threading.enumerate()}
    wait_until(lambda: threading.active_count() - before <= MAX_CONNECTIONS, "threads end with their connections")
    wait_until(lambda: all(is_closed(each) for each in idle[:MAX_CONNECTIONS]), "the oldest are closed")
    assert not is_closed(idle[-1])
    for each in idle:
        each.close()


def test_an_address_with_many_connections_closes_none_of_another(server: BoundedServer) -> None:
    with connected(server) as slow:
        flood = [connected(server, "127.0.0.2") for _ in range(4 * MAX_CONNECTIONS)]
        assert answer(server) == "ok\n"
        assert not is_closed(slow)
    for each in flood:
        each.close()


@pytest.mark.parametrize(("seconds", "problem"), [(0, ""), (30, ""), (30.6, "the event loop has not turned for 31 s")])
def test_an_event_loop_that_does_not_turn_is_a_problem(seconds: float, problem: str) -> None:
    now = [1000.0]
    heartbeat = Heartbeat(lambda: now[0])
    assert heartbeat.problem() == ""
    now[0] += 500
    heartbeat.beat()
    now[0] += seconds
    assert heartbeat.problem() == problem


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        (":0", ("", 0)),
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("[::1]:80", ("::1", 80)),
        ("127.0.0.1:65536", None),
        ("127.0.0.1", None),
        (":", None),
        (":-1", None),
        (":\u0661", None),
    ],
)
def test_an_address_is_host_and_port(address: str, parts: tuple[str, int] | None) -> None:
    if parts is not None:
        assert parse_address(address) == parts
        return
    with pytest.raises(ValueError, match=address):
        parse_address(address)


@pytest.mark.parametrize("drip", [b"", b"a"], ids=["silent", "dripping"])
def test_a_connection_ends_in_time(server: BoundedServer, drip: bytes) -> None:
    server.connection_seconds = 0.5
    with connected(server) as connection:

        def is_cut() -> bool:
            # on a slow machine it may be closed before anything is sent
            with contextlib.suppress(ConnectionError):
                connection.sendall(drip)
            return is_closed(connection)

        with contextlib.suppress(ConnectionError):
            connection.sendall(REQUEST + b"X-Slow: ")
        wait_until(is_cut, "the connection is closed")


def test_headers_without_end_are_cut_off(server: BoundedServer) -> None:
    with connected(server) as connection:
        connection.sendall(REQUEST)
        try:
            for _ in range(1000):
                connection.sendall(b"X-Many: " + b"a" * 10_000 + b"\r\n")
        except OSError:
            return
    pytest.fail("10 MB of headers were read")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_a_host_may_be_an_address_of_ipv6_and_no_host_is_every_address(serving: Serve) -> None:
    assert answer(serving("::1"), "[::1]") == "ok\n"
    server = serving("")
    assert answer(server) == answer(server, "[::1]") == "ok\n"


def test_no_host_without_ipv6_is_every_address_of_ipv4(serving: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(http_server._DualStackServer, "server_bind", refuse)
    assert answer(serving("")) == "ok\n"


async def _created(group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("authentication", "chain", "key", "sentence"),
    [
        pytest.param("token", "", "", "token needs tlsCertificate and tlsKey", id="tokens without TLS"),
        pytest.param("none", "/a.crt", "", "belong together", id="no key"),
        pytest.param("none", "", "/a.key", "belong together", id="no certificate"),
        pytest.param("none", "/none/a.crt", "/none/a.key", "cannot be used: .*No such file", id="no such file"),
        pytest.param("none", __file__, __file__, "cannot be used: .*PEM", id="not PEM"),
    ],
)
async def test_what_cannot_be_protected_is_an_error(
    authentication: Authentication, chain: str, key: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        protection(authentication, chain, key, _created)


def test_a_probe_is_answered_whatever_there_is_to_say(serving: Serve) -> None:
    assert answer(serving(checks={"/healthz": lambda: (True, "ok\nsocket \udcff")})) == "ok\nsocket ?\n"


class Account(MetricsAccess):
    """Access of which the verdict is set."""

    def __init__(self, verdict: HTTPStatus) -> None:
        self.verdict = verdict
        self.asked: list[str] = []

    def check(self, authorization: str) -> HTTPStatus:
        self.asked.append(authorization)
        return self.verdict


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (HTTPStatus.OK, ""),
        (HTTPStatus.UNAUTHORIZED, "a bearer token that the API server accepts is needed\n"),
        (HTTPStatus.FORBIDDEN, "this account may not read metrics: grant it get on the nonResourceURL /metrics\n"),
        (HTTPStatus.TOO_MANY_REQUESTS, "too many unknown tokens; try again in a second\n"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "the API server does not authenticate this token; its state is at /healthz\n"),
    ],
)
def test_metrics_are_for_those_who_may_read_them_and_probes_for_everybody(
    serving: Serve, verdict: HTTPStatus, text: str
) -> None:
    access = Account(verdict)
    server = serving(protection=Protection(access=access))
    answers = [
        raw(server, f"GET {path} HTTP/1.1\r\nHost: here\r\n{header}\r\n")
        for path in ("/metrics", "/healthz")
        for header in ("Authorization: Bearer t\r\n", "")
    ]
    assert access.asked == ["Bearer t", ""]
    for status, headers, body in answers[:2]:
        assert status == f"HTTP/1.1 {verdict.value} {verdict.phrase}"
        assert headers.get("WWW-Authenticate") == ("Bearer" if verdict is HTTPStatus.UNAUTHORIZED else None)
        assert body.decode() == text
    assert [body for _, _, body in answers[2:]] == [b"ok\n"] * 2


def raw(server: BoundedServer, request: str) -> tuple[str, dict[str, str], bytes]:
    """Status line, headers and body, as they come over the connection until it ends."""
    with connected(server) as connection:
        connection.sendall(request.encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/healthz", "200 OK", b"ok\n"),
        ("/healthz?verbose", "200 OK", b"ok\n"),
        ("/readyz", "503 Service Unavailable", b"waits for nodes\n"),
        ("/other", "404 Not Found", b"not found; known are /healthz, /readyz, /metrics\n"),
    ],
)
def test_each_answer_says_what_it_is_and_how_long(serving: Serve, path: str, status: str, body: bytes) -> None:
    server = serving(checks={"/healthz": lambda: (True, "ok"), "/readyz": lambda: (False, "waits for nodes")})
    # a connection is one request
    found, headers, content = raw(server, 2 * f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n")
    assert (found, content) == (f"HTTP/1.1 {status}", body)
    expected = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body)), "Connection": "close"}
    assert expected.items() <= headers.items()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_metrics_come_in_the_form_that_is_asked_for(server: BoundedServer, accept: str) -> None:
    status, headers, content = raw(server, f"GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: {accept}\r\n\r\n")
    assert (status, headers["Content-Length"]) == ("HTTP/1.1 200 OK", str(len(content)))
    assert headers["Content-Type"].startswith(accept.partition(";")[0] or "text/plain; version=")


def test_without_descriptors_a_client_waits_and_the_thread_sleeps(
    serving: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is a try: without the pause there would be a hundred thousand a second, and a line for each."""
    failures = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
    pauses: list[float] = []
    monkeypatch.setattr("nodedevice_common.http_server.time.sleep", pauses.append)
    accept = socketserver.TCPServer.get_request

    def accepting(server: BoundedServer) -> tuple[socket.socket, object]:
        if failures:
            raise failures.pop()
        return accept(server)

    monkeypatch.setattr(socketserver.TCPServer, "get_request", accepting)
    assert answer(serving()) == "ok\n"
    assert pauses == 3 * [0.5]
    assert [record.message for record in caplog.records] == ["cannot accept connections of probes and metrics"]
