"""One request at a time against a server on loopback: what is sent, and what each answer becomes."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    CredentialsError,
    Denied,
    FieldConflict,
    Forbidden,
    Invalid,
    NotFound,
    OverBudget,
    Unauthorized,
    Unavailable,
    Unreachable,
    WatchInterrupted,
)
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import APPLY, Client, retry_after_seconds
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.lists import NODES, Cluster
from nodedevice_operator.observability.metrics import Metrics

from tests.unit.operator.kube.api_server import Server, client_of, kubeconfig, listening, page


async def test_an_apply_is_sent_as_such(server: Server, client: Client) -> None:
    server.answers = [(200, {"a": 1})]
    body = {"status": {"capacity": {"example.com/gpu": "8"}}}
    query = {"fieldManager": "me", "force": "false"}
    answer = await client.request(
        "PATCH", "nodes/status", "/api/v1/nodes/a/status", query=query, body=body, content_type=APPLY
    )
    assert json.loads(answer) == {"a": 1}
    ((verb, path, headers, sent),) = server.asked
    assert (verb, path) == ("PATCH", "/api/v1/nodes/a/status?fieldManager=me&force=false")
    assert sent == body
    assert headers["Content-Type"] == APPLY
    assert headers["Authorization"] == "Bearer first"
    assert (headers["Accept"], headers["User-Agent"]) == ("application/json", "nodedevice-operator")


async def test_a_read_is_sent_without_a_body_and_in_the_form_it_asks_for(server: Server, client: Client) -> None:
    server.answers = [(200, {}), (200, {})]
    await client.request("GET", "nodes", "/x")
    await client.request("GET", "nodes", "/x", accept="application/json;as=Metadata")
    assert [headers["Accept"] for _, _, headers, _ in server.asked] == [
        "application/json",
        "application/json;as=Metadata",
    ]
    for _, _, headers, body in server.asked:
        assert "Content-Type" not in headers
        assert headers["Accept-Encoding"] == "identity"
        assert body is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, Invalid),
        (422, Invalid),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
@pytest.mark.parametrize(
    "content",
    [{"message": "so it is", "details": None}, {"message": "so it is"}, b"<html>", b'{"message":"\xff"}', b""],
)
async def test_every_refusal_is_an_error_of_ours(
    server: Server, client: Client, status: int, kind: type[ApiError], content: Any
) -> None:
    server.answers = [(status, content)]
    with pytest.raises(ApiError) as refused:
        await client.request("GET", "nodes", "/api/v1/nodes/a")
    assert type(refused.value) is kind
    assert refused.value.status == status
    assert refused.value.what == "nodes"


async def test_causes_and_retry_after_come_along(server: Server, client: Client) -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" using v1', "field": ".status.x"}
    server.answers = [
        (409, {"details": {"causes": [cause]}}),
        (429, {"details": {"retryAfterSeconds": 3}}),
        (403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
    ]
    with pytest.raises(Conflict) as conflict:
        await client.request("PATCH", "nodes/status", "/x", body={}, content_type=APPLY)
    assert conflict.value.causes == (FieldConflict("kubelet", ".status.x"),)
    with pytest.raises(Unavailable) as later:
        await client.request("GET", "nodes", "/x")
    assert later.value.retry_after_seconds == 3
    with pytest.raises(NotFound):
        await client.request("PATCH", "poddevices", "/x", body={}, content_type=APPLY)


async def test_outage_and_its_end_are_logged(server: Server, client: Client, health: ApiHealth, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
    async with client_of(tmp_path, nowhere, health=health) as lost:
        with pytest.raises(Unreachable, match="Connection refused"):
            await lost.request("GET", "nodes", "/x")
    (problem,) = health.problems()
    assert "is unreachable" in problem
    server.answers = [(404, {})]
    with pytest.raises(NotFound):
        await client.request("GET", "nodes", "/x")
    assert health.problems() == ()


async def test_a_missing_right_is_reported_until_it_is_there(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {}), (200, {}), (200, {})]
    with pytest.raises(Forbidden):
        await client.request("PATCH", "nodes/status", "/x", body={})
    await client.request("GET", "nodes", "/x")
    assert health.problems() == ("API server forbids PATCH nodes/status",)
    await client.request("PATCH", "nodes/status", "/x", body={})
    assert health.problems() == ()


async def test_a_token_that_is_not_accepted_is_read_again(server: Server, client: Client, tmp_path: Path) -> None:
    server.answers = [(401, {}), (200, {})]
    with pytest.raises(Forbidden):
        await client.request("GET", "nodes", "/x")
    (tmp_path / "token").write_text("second")
    await client.request("GET", "nodes", "/x")
    assert [headers["Authorization"] for _, _, headers, _ in server.asked] == ["Bearer first", "Bearer second"]


async def test_a_list_is_read_page_by_page(server: Server, client: Client) -> None:
    a, b = ({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "status": {}} for name in "ab")
    server.answers = [page(a, more="next&"), page(b)]
    listed = await Cluster(client).list_all(NODES)
    assert [node.name for node in listed.records] == ["a", "b"]
    assert listed.version == 9
    assert [path for _, path, _, _ in server.asked] == [
        "/api/v1/nodes?limit=250",
        "/api/v1/nodes?limit=250&continue=next%26",
    ]


@pytest.mark.parametrize("content", ["", "{", "a: b", "apiVersion: v1\nkind: Config\n"])
def test_a_useless_kubeconfig_is_one_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    with pytest.raises(CredentialsError, match="kubeconfig"):
        credentials.load(str(file))


def test_a_token_file_that_is_gone_is_one_error(tmp_path: Path) -> None:
    login = credentials.load(kubeconfig(tmp_path, "http://127.0.0.1:1", token="x"))
    assert login.authorization() == "Bearer x"
    (tmp_path / "token").write_text("y")
    login = credentials.load(kubeconfig(tmp_path, "http://127.0.0.1:1", tokenFile=str(tmp_path / "token")))
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialsError, match="token"):
        login.authorization()


async def test_a_tls_connection_that_ends_in_the_middle_is_an_outage(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with listening(hang_up, "https") as url, client_of(tmp_path, url) as client:
        with pytest.raises(Unreachable):
            await client.request("PUT", "leases", "/", body={})


async def test_a_disruption_budget_is_no_outage(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(429, {"message": "not now", "details": {"causes": [{"reason": "DisruptionBudget"}]}})]
    with pytest.raises(OverBudget, match="not now"):
        await client.request("POST", "pods/eviction", "/x", body={})
    assert health.problems() == ()


@pytest.mark.parametrize(
    ("header", "stated", "seconds"),
    [
        (None, None, None),
        ("1", None, 1),
        ("1", 3, 3),
        ("Sat, 21 Nov 2026 12:00:00 GMT", None, None),
        ("-1", None, None),
        ("9" * 400, None, 60),
        (None, 86400, 60),
    ],
)
def test_when_to_come_back(header: str | None, stated: float | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, stated) == seconds


async def test_a_busy_api_server_is_logged_now_and_then_and_is_no_outage(
    server: Server, client: Client, health: ApiHealth, caplog: pytest.LogCaptureFixture
) -> None:
    back: list[str] = []
    health.on_recovery = lambda: back.append("back")
    for _ in range(3):
        server.answers = [(429, b"Too many requests, please try again later."), (200, {})]
        with pytest.raises(Unavailable):
            await client.request("PATCH", "nodes/status", "/x", body={})
        assert health.problems() == ("API server is too busy for PATCH nodes/status",)
        await client.request("PATCH", "nodes/status", "/x", body={})
        assert health.problems() == ()
    assert [record.message for record in caplog.records] == [
        "API server is too busy; retrying after the delay it asks for"
    ]
    assert back == [], "nobody is asked to try again sooner than the API server wants"
    assert health.seconds_since_outage() == 0


async def test_a_policy_that_refuses_one_is_no_missing_right(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {"message": "denied request: no", "details": {"causes": [{"message": "no"}]}})]
    with pytest.raises(Denied, match="denied request: no"):
        await client.request("PATCH", "nodes/status", "/x", body={})
    assert health.problems() == ()


_WEBHOOK = {"message": 'admission webhook "x.example" denied the request: no', "reason": "no", "code": 403}
_ROLE = {"message": 'nodes "a" is forbidden: User "u" cannot patch', "details": {"name": "a", "kind": "nodes"}}


@pytest.mark.parametrize(
    ("verb", "body", "kind"),
    [
        pytest.param("PATCH", _WEBHOOK, Denied, id="a webhook"),
        pytest.param("POST", {**_WEBHOOK, "details": {}}, Denied, id="a webhook, with empty details"),
        pytest.param("PATCH", {**_ROLE, "details": {"causes": [{"message": "no"}]}}, Denied, id="a policy"),
        pytest.param("PATCH", _ROLE, Forbidden, id="a role"),
        # no admission is asked for a read
        pytest.param("GET", {"message": "cannot get path"}, Forbidden, id="a role for a path"),
        pytest.param("PATCH", {}, Forbidden, id="a proxy"),
        pytest.param("PATCH", b"<html>403</html>", Forbidden, id="a proxy's page"),
    ],
)
async def test_whose_refusal_it_is(
    server: Server, client: Client, health: ApiHealth, verb: str, body: Any, kind: type[ApiError]
) -> None:
    server.answers = [(403, body)]
    with pytest.raises(Forbidden) as refused:
        await client.request(verb, "nodes", "/x")
    assert type(refused.value) is kind
    assert bool(health.problems()) == (kind is Forbidden)


async def test_a_host_name_for_which_no_thread_can_be_started_is_no_response(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(aiohttp.TCPConnector, "_resolve_host", fails)
    with pytest.raises(Unreachable, match="can't start new thread"):
        await client.request("GET", "nodes", "/x")
    with pytest.raises(Unreachable, match="can't start new thread"):
        async for _ in client.watch("nodes", "/x", {}):
            pass


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "ok"), (409, "Conflict"), (403, "Forbidden"), (503, "Unavailable")]
)
async def test_writes_are_counted_by_how_they_ended_and_reads_are_not(
    server: Server, health: ApiHealth, tmp_path: Path, status: int, outcome: str
) -> None:
    server.answers = [(status, {}), (status, {})]
    metrics = Metrics()
    async with client_of(tmp_path, server.url, health=health, writes=metrics.writes) as client:
        for verb in ("PATCH", "GET"):
            with contextlib.suppress(ApiError):
                await client.request(verb, "nodes/status", "/api/v1/nodes/a/status")
    counted = [s for family in metrics.writes.collect() for s in family.samples]
    assert [(s.labels, s.value) for s in counted] == [
        ({"kind": "nodes/status", "verb": "patch", "outcome": outcome}, 1)
    ]


class TestLentSession:
    """What a library gets: our connections, a token for each request, and no refusal on which it would give up."""

    async def test_it_carries_the_current_token_and_can_be_closed(
        self, server: Server, client: Client, tmp_path: Path
    ) -> None:
        server.answers = [(200, {}), (200, {"groups": []}), (200, {})]
        await client.request("GET", "nodes", "/x")
        async with client.lend_session() as lent, lent.get(f"{server.url}/apis") as response:
            assert response.status == 200
        await client.request("GET", "nodes", "/y")
        for _, _, headers, _ in server.asked:
            assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer first", "nodedevice-operator")
            assert headers["Accept-Encoding"] == "identity"

    async def test_no_cookie_is_kept(self, server: Server, client: Client) -> None:
        """A load balancer's would bind a session to one API server."""
        async with client.lend_session() as lent:
            for session in (lent, client._session):
                assert isinstance(session.cookie_jar, aiohttp.DummyCookieJar)

    @pytest.mark.parametrize("status", [401, 403])
    async def test_a_refusal_is_like_a_broken_connection(self, server: Server, client: Client, status: int) -> None:
        server.answers = [(status, {})]
        async with client.lend_session() as lent:
            with pytest.raises(aiohttp.ClientConnectionError, match=f"HTTP {status}"):
                await lent.get(f"{server.url}/apis")

    async def test_so_does_a_token_that_cannot_be_read(self, server: Server, client: Client, tmp_path: Path) -> None:
        (tmp_path / "token").unlink()
        async with client.lend_session() as lent:
            with pytest.raises(aiohttp.ClientConnectionError, match="token"):
                await lent.get(f"{server.url}/apis")
        assert server.asked == []


async def test_no_redirect_is_followed_and_no_step_in_a_path(server: Server, client: Client) -> None:
    server.answers = [(302, {}), (200, {})]
    with pytest.raises(Invalid):
        await client.request("GET", "nodes", "/api/v1/nodes/a")
    await client.request("GET", "nodes", "/api/v1/nodes/..", query={"limit": 1})
    assert [path for _, path, _, _ in server.asked] == ["/api/v1/nodes/a", "/api/v1/nodes/..?limit=1"]


async def test_no_more_requests_run_side_by_side_than_there_are_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0

    async def send(*_request: Any) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # by then all have come that may
        for _ in range(10):
            await asyncio.sleep(0)
        running -= 1
        return b"{}"

    async with client_of(tmp_path, "http://127.0.0.1:1", concurrent=2) as made:
        monkeypatch.setattr(made, "_send", send)
        await asyncio.gather(*(made.request("GET", "nodes", "/x") for _ in range(6)))
    assert most == 2


@pytest.mark.parametrize(
    ("options", "read_seconds", "total", "connect"),
    [
        # a read lasts as long as bytes come; a write has an end
        pytest.param({}, 15.0, None, 5.0, id="a read"),
        pytest.param({"body": {}}, 15.0, 35.0, 5.0, id="a write"),
        pytest.param({"body": {}}, 2.0, 6.0, 2.0, id="a write of a client in a hurry"),
        pytest.param({"seconds": 3.0}, 15.0, 3.0, 5.0, id="a read with an end"),
        pytest.param({"seconds": 3.0, "body": {}}, 15.0, 3.0, 5.0, id="a write with its own end"),
    ],
)
async def test_how_long_an_answer_is_waited_for(
    options: dict[str, Any],
    read_seconds: float,
    total: float | None,
    connect: float,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[aiohttp.ClientTimeout] = []
    request = aiohttp.ClientSession.request

    def noted(self: aiohttp.ClientSession, *given: Any, **more: Any) -> Any:
        used.append(more["timeout"])
        return request(self, *given, **more)

    monkeypatch.setattr(aiohttp.ClientSession, "request", noted)
    server.answers = [(200, {})]
    async with client_of(tmp_path, server.url, read_seconds=read_seconds) as made:
        await made.request("PUT" if "body" in options else "GET", "nodes", "/x", **options)
    assert [(each.total, each.sock_connect, each.sock_read) for each in used] == [(total, connect, read_seconds)]


@pytest.mark.parametrize("status", [409, 422, 429, 403, 401, 404, 500, 400])
async def test_an_error_names_the_request_and_what_the_api_server_says(
    status: int, server: Server, client: Client
) -> None:
    server.answers = [(status, {"message": "because"}), (status, b"no JSON")]
    for problem in ("because", f"HTTP {status}"):
        with pytest.raises(ApiError) as found:
            await client.request("PATCH", "nodes/status", "/x", body={})
        assert (found.value.verb, found.value.what, found.value.problem) == ("PATCH", "nodes/status", problem)
        assert found.value.status == status


async def test_a_watch_may_be_silent_for_as_long_as_between_two_bookmarks(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[aiohttp.ClientTimeout] = []
    get = aiohttp.ClientSession.get

    def noted(self: aiohttp.ClientSession, *given: Any, **more: Any) -> Any:
        used.append(more["timeout"])
        return get(self, *given, **more)

    monkeypatch.setattr(aiohttp.ClientSession, "get", noted)
    server.answers = [(200, b"{}\n")]
    assert [line async for line in client.watch("nodes", "/x", {})] == [b"{}"]
    assert [(each.total, each.sock_connect, each.sock_read) for each in used] == [(None, 5.0, 90.0)]


async def test_a_watch_that_is_cut_names_its_kind(tmp_path: Path) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}\n")
        writer.close()

    async with listening(cut) as url, client_of(tmp_path, url) as client:
        with pytest.raises(WatchInterrupted) as interrupted:
            [_ async for _ in client.watch("nodes", "/x", {})]
    assert (interrupted.value.verb, interrupted.value.what) == ("watch", "nodes")


async def test_an_error_of_a_watch_names_its_kind(server: Server, client: Client, tmp_path: Path) -> None:
    server.answers = [(410, {"message": "too old"})]
    with pytest.raises(ApiError) as refused:
        [_ async for _ in client.watch("nodes", "/x", {})]
    assert (refused.value.verb, refused.value.what, refused.value.problem) == ("watch", "nodes", "too old")
    health = ApiHealth("http://127.0.0.1:1")
    async with client_of(tmp_path, "http://127.0.0.1:1", health=health) as lost:
        with pytest.raises(Unreachable) as failed:
            [_ async for _ in lost.watch("nodes", "/x", {})]
    assert "is unreachable" in health.problems()[0]
    assert (failed.value.verb, failed.value.what) == ("watch", "nodes")
