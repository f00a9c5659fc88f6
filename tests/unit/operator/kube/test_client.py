"""One request at a time against a server on loopback: what is sent, and what each answer becomes."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from nodedevice_common.api_connections import Connections
from nodedevice_kube.api_errors import ApiError, Invalid, NotFound, Unreachable
from nodedevice_kube.paths import APPLY
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.observability.metrics import Metrics

from tests.unit.operator.kube.api_server import Server, client_of


async def _watched(client: Client) -> list[bytes]:
    async with client.watch("nodes", "/x", {}) as lines:
        return [line async for line in lines]


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


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "ok"), (201, "ok"), (409, "Conflict"), (403, "Forbidden"), (503, "Unavailable")]
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

    async def call(*_given: Any, **_more: Any) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # by then all have come that may
        for _ in range(10):
            await asyncio.sleep(0)
        running -= 1
        return b"{}"

    async with client_of(tmp_path, "http://127.0.0.1:1", concurrent=2) as made:
        monkeypatch.setattr(made._transport, "call", call)
        await asyncio.gather(*(made.request("GET", "nodes", "/x") for _ in range(6)))
    assert most == 2


@pytest.mark.parametrize(
    ("options", "read_seconds", "total", "connect"),
    [
        # a read lasts as long as bytes come; a write has an end
        pytest.param({}, 15.0, None, 10.0, id="a read"),
        pytest.param({"body": {}}, 15.0, 35.0, 10.0, id="a write"),
        pytest.param({"body": {}}, 2.0, 6.0, 4.0, id="a write of a client in a hurry"),
        pytest.param({"seconds": 3.0}, 15.0, 3.0, 10.0, id="a read with an end"),
        pytest.param({"seconds": 3.0, "body": {}}, 15.0, 3.0, 10.0, id="a write with its own end"),
    ],
)
async def test_how_long_a_response_is_waited_for(
    options: dict[str, Any],
    read_seconds: float,
    total: float | None,
    connect: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[float | None] = []

    async def call(*_: Any, seconds: float | None, **__: Any) -> bytes:
        used.append(seconds)
        return b"{}"

    async with client_of(tmp_path, "http://127.0.0.1:1", read_seconds=read_seconds) as made:
        monkeypatch.setattr(made._transport, "call", call)
        await made.request("PUT" if "body" in options else "GET", "nodes", "/x", **options)
        connections = made._transport._sender
        assert isinstance(connections, Connections)
        assert (used, made._transport._seconds, connections._connect_seconds) == ([total], read_seconds, connect)


async def test_a_watch_may_be_silent_for_as_long_as_between_two_bookmarks(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float | None] = []
    opened = client._transport.open

    async def noted(*given: Any, seconds: float | None, **more: Any) -> Any:
        used.append(seconds)
        return await opened(*given, seconds=seconds, **more)

    monkeypatch.setattr(client._transport, "open", noted)
    server.answers = [(200, b"{}\n")]
    assert await _watched(client) == [b"{}"]
    assert used == [90.0]


async def test_an_error_of_a_watch_names_its_kind(server: Server, client: Client, tmp_path: Path) -> None:
    server.answers = [(410, {"message": "too old"})]
    with pytest.raises(ApiError) as refused:
        await _watched(client)
    assert (refused.value.verb, refused.value.what, refused.value.problem) == ("watch", "nodes", "too old")
    health = ApiHealth("http://127.0.0.1:1")
    async with client_of(tmp_path, "http://127.0.0.1:1", health=health) as lost:
        with pytest.raises(Unreachable) as failed:
            await _watched(lost)
    assert "is unreachable" in health.problems()[0]
    assert (failed.value.verb, failed.value.what) == ("watch", "nodes")
