"""The page's server: who may ask, what is refused, and what a browser is sent."""

import contextlib
import http.client
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubectl_nodedevice.cluster import NodeDevice
from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.page import server as module
from kubectl_nodedevice.page.command import snapshot_of
from kubectl_nodedevice.page.fleet import Fleet
from kubectl_nodedevice.page.peers import is_own
from kubectl_nodedevice.page.server import PageServer
from kubectl_nodedevice.records import record_of

from tests.cluster import waiting
from tests.unit.cli.objects import device, node_device

HOSTILE = '<script>alert(1)</script>"\u202e'
Headers = dict[str, str]


def view(name: str, query: Mapping[str, str]) -> Any:
    if query.get("name") == "gone":
        raise CliError("node gone does not exist", "it was removed")
    if query.get("name") == "mistake":
        raise KeyError("x")
    return {"view": name, "query": dict(query)}


def put(fleet: Fleet, node: str = "node-a", health: str = "Healthy") -> None:
    fleet.put(record_of(NodeDevice, node_device(node, devices=[device(HOSTILE, health)])))


@pytest.fixture
def server() -> Iterator[PageServer]:
    fleet = Fleet()
    fleet.source("nodedevices", as_of=1.0)
    put(fleet)
    made = PageServer(0, fleet, {"cluster": "test", "user": "alice"}, view)
    thread = threading.Thread(target=made.serve_forever, args=[0.01], daemon=True)
    thread.start()
    yield made
    made.ended.set()
    made.shutdown()
    made.server_close()


def ask(
    server: PageServer, path: str, headers: Headers | None = None, body: str | None = None
) -> tuple[int, Headers, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def logged_in(server: PageServer, **more: str) -> Headers:
    status, headers, _ = ask(server, "/login", body=server.token)
    assert status == 200
    return {"Cookie": headers["set-cookie"].partition(";")[0], **more}


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_page_has(server: PageServer) -> None:
    assert server.address.startswith(f"http://127.0.0.1:{server.server_port}/#token=")
    _, headers, _ = ask(server, "/login", body=server.token)
    name, *flags = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict"} <= set(flags)
    assert str(server.server_port) in name, "a second page on this machine has a cookie of its own"
    assert ask(server, "/api/fleet", logged_in(server))[0] == 200


@pytest.mark.parametrize("path", ["/api/fleet", "/api/events", "/api/node?name=a", "/api/nothing"])
@pytest.mark.parametrize("cookie", ["", "nodedevice-{port}=wrong", "other={token}", "\x01;;=", "nodedevice-1={token}"])
def test_without_the_cookie_there_is_nothing(server: PageServer, path: str, cookie: str) -> None:
    value = cookie.format(port=server.server_port, token=server.token)
    status, _, body = ask(server, path, {"Cookie": value} if value else {})
    assert status == 401
    assert "kubectl nodedevice open" in json.loads(body)["problem"]


@pytest.mark.parametrize(
    ("path", "body"), [("/login", "wrong"), ("/login", ""), ("/other", "{token}"), ("/login", "x" * 5000)]
)
def test_another_token_is_refused(server: PageServer, path: str, body: str) -> None:
    status, headers, _ = ask(server, path, body=body.format(token=server.token))
    assert status == 401
    assert "set-cookie" not in headers


def test_the_token_on_a_browsers_command_line_works_once(server: PageServer) -> None:
    token = server.address_once.partition("#token=")[2]
    assert token != server.token
    assert [ask(server, "/login", body=token)[0] for _ in range(2)] == [200, 401]
    assert ask(server, "/login", body=server.token)[0] == 200


def test_nor_does_it_work_for_another_user(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_own", lambda peer, port: False)
    assert ask(server, "/login", body=server.address_once.partition("#token=")[2])[0] == 401


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("0100007F:9C40 0100007F:1F90 01 0:0 0:0 0 {uid}", True),
        ("0100007F:9C40 0100007F:1F90 01 0:0 0:0 0 0", True),
        ("0100007F:9C40 0100007F:1F90 01 0:0 0:0 0 54321", False),
        ("0100007F:9C41 0100007F:1F90 01 0:0 0:0 0 {uid}", False),
        ("0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 54321", False),
        ("", False),
    ],
    ids=["own", "root's", "another user's", "another connection", "another user's by IPv6", "none"],
)
def test_whose_process_is_at_the_other_end(tmp_path: Path, row: str, expected: bool) -> None:
    (tmp_path / "tcp").write_text(f"  sl  local_address rem_address ...\n   0: {row.format(uid=os.getuid())}\n")
    assert is_own(40000, 8080, tmp_path) is expected
    assert is_own(40000, 8080, tmp_path / "no Linux")


@pytest.mark.parametrize("others", ['x={"a": [1]}; {own}', "a b; ;=; {own}", "é=é; {own} "])
def test_cookies_of_other_programs_of_this_machine_do_no_harm(server: PageServer, others: str) -> None:
    cookie = logged_in(server)["Cookie"]
    assert ask(server, "/api/fleet", {"Cookie": others.replace("{own}", cookie)})[0] == 200


def sent(server: PageServer, request: bytes) -> tuple[int, Any]:
    """What comes back for these octets."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://[ HTTP/1.1", 400),
        (b"GET /\xff\x00 HTTP/1.1", 404),
        (b"PUT / HTTP/1.1", 501),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1", 414),
        (b"POST /login HTTP/1.1\r\nContent-Length: " + b"9" * 5000, 401),
        (b"GET /api/node?name=mistake HTTP/1.1", 500),
    ],
    ids=["no address", "odd octets", "another method", "long", "long length", "mistake"],
)
def test_odd_requests_get_a_sentence(server: PageServer, line: bytes, status: int) -> None:
    cookie = logged_in(server)["Cookie"].encode()
    host = f"Host: 127.0.0.1:{server.server_port}".encode()
    request = b"\r\n".join([line, host, b"Cookie: " + cookie, b"", b""])
    found = sent(server, request)
    assert found[0] == status
    assert found[1]["problem"]


def test_connections_have_a_bound(server: PageServer) -> None:
    for _ in range(module._MOST_CONNECTIONS - 3):
        server._connections.acquire()
    address = ("127.0.0.1", server.server_port)
    with contextlib.ExitStack() as opened:
        idle = [opened.enter_context(socket.create_connection(address, timeout=60)) for _ in range(4)]
        assert b"close some of its tabs" in idle[3].recv(1000)
    waiting.wait_until(lambda: ask(server, "/")[0] == 200, "the ended connections are forgotten")


def test_more_streams_than_allowed_get_an_error(server: PageServer) -> None:
    for _ in range(module._MOST_STREAMS - 1):
        server.streams.acquire()
    first = events(server, f"epoch={server.fleet.epoch}&since={server.fleet.sequence}")
    next(first)
    [(event, found)] = events(server, f"epoch={server.fleet.epoch}&since={server.fleet.sequence}")
    assert (event, "too many tabs" in found["problem"]) == ("full", True)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_at_another_port_cannot_ask(server: PageServer, site: str) -> None:
    assert ask(server, "/api/fleet", logged_in(server) | {"Sec-Fetch-Site": site})[0] == 403
    assert ask(server, "/", {"Sec-Fetch-Site": site})[0] == 200, "a link to the page"


@pytest.mark.parametrize(
    "headers",
    [{"Host": "attacker.example"}, {"Host": "127.0.0.1:1"}, {"Origin": "http://attacker.example"}, {"Origin": "null"}],
    ids=["another name for this address", "another port", "another page", "a sandboxed page"],
)
def test_another_page_of_the_browser_cannot_ask(server: PageServer, headers: Headers) -> None:
    assert ask(server, "/api/fleet", logged_in(server) | headers)[0] == 403
    assert ask(server, "/login", headers, server.token)[0] == 403


def test_nothing_is_loaded_from_elsewhere_or_kept(server: PageServer) -> None:
    for path in ("/", "/page.js", "/page.css", "/icon.svg"):
        status, headers, body = ask(server, path)
        assert (status, headers["cache-control"]) == (200, "no-store")
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert b"//" not in body.replace(b"http://www.w3.org/2000/svg", b"") or path == "/page.js"
    assert sum(len(ask(server, path)[2]) for path in ("/", "/page.js", "/page.css", "/icon.svg")) < 150_000


def test_the_fleet_and_a_view(server: PageServer) -> None:
    cookie = logged_in(server)
    found = json.loads(ask(server, "/api/fleet", cookie)[2])
    assert found["about"] == {"cluster": "test", "user": "alice"}
    assert [each["ids"] for each in found["squares"]] == [[HOSTILE]]
    assert json.loads(ask(server, "/api/node?name=a%20b", cookie)[2]) == {"view": "node", "query": {"name": "a b"}}
    status, _, body = ask(server, "/api/node?name=gone", cookie)
    assert (status, json.loads(body)) == (409, {"problem": "node gone does not exist", "remedy": "it was removed"})
    assert ask(server, "/api/nothing", cookie)[0] == 404
    assert ask(server, "/nothing", cookie)[0] == 404


def events(server: PageServer, query: str) -> Iterator[tuple[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", f"/api/events?{query}", headers=logged_in(server))
        response = connection.getresponse()
        while line := response.readline().decode().strip():
            yield line.removeprefix("event: "), json.loads(response.readline().decode().removeprefix("data: "))
            response.readline()


def test_changes_are_sent_as_they_come(server: PageServer) -> None:
    fleet = server.fleet
    coming = events(server, f"epoch={fleet.epoch}&since={fleet.sequence}")
    assert [next(coming)[0], next(coming)[0]] == ["needs", "sources"]
    put(fleet, health="Unhealthy")
    event, found = next(coming)
    assert (event, found["squares"][0]["states"], found["gone"]) == ("changed", "b", [])
    fleet.remove(found["squares"][0]["name"])
    later = next(data for event, data in coming if event == "changed")
    assert later["gone"] == [found["squares"][0]["name"]]


@pytest.mark.parametrize(
    "query",
    ["", "epoch=old&since=1", "epoch={epoch}&since=99", "epoch={epoch}&since=x", f"epoch={{epoch}}&since={'9' * 5000}"],
)
def test_a_browser_of_an_earlier_start_loads_everything_again(server: PageServer, query: str) -> None:
    assert [event for event, _ in events(server, query.format(epoch=server.fleet.epoch))] == ["reload"]


def test_a_snapshot_is_one_file_that_asks_for_nothing(server: PageServer) -> None:
    page = snapshot_of(server.fleet, {"cluster": HOSTILE, "user": ""})
    assert "<script>alert(1)" not in page
    assert "default-src 'none'" in page
    assert 'src="' not in page
    assert "/page.css" not in page
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["squares"][0]["ids"] == [HOSTILE]
