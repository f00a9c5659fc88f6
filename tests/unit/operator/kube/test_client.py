"""One request at a time against a server on loopback: what is sent, and what each answer becomes."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from nodedevice_kube.api_errors import ApiError, Unreachable
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.http_peer import OK, listening, received
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.operator.kube.api_server import Server, client_of


async def _watched(client: Client) -> list[bytes]:
    async with client.watch("nodes", "/x", {}) as lines:
        return [line async for line in lines]


@pytest.mark.parametrize(("status", "outcome"), [(201, "ok"), (409, "Conflict"), (503, "Unavailable")])
async def test_writes_are_counted_by_how_they_ended_and_reads_are_not(
    server: Server, health: ApiHealth, tmp_path: Path, status: int, outcome: str
) -> None:
    server.answers = [(status, {}), (status, {})]
    metrics = Metrics()
    health.failed(Unreachable("GET", "nodes", "away"))
    async with client_of(tmp_path, server.url, health=health, writes=metrics.writes) as client:
        for verb in ("PATCH", "GET"):
            with contextlib.suppress(ApiError):
                await client.request(verb, "nodes/status", "/api/v1/nodes/a/status")
    [counted] = [sample for family in metrics.writes.collect() for sample in family.samples]
    assert (counted.labels, counted.value) == ({"kind": "nodes/status", "verb": "patch", "outcome": outcome}, 1)
    assert bool(health.problems()) is (outcome == "Unavailable"), "another response ends the outage"


async def test_no_more_requests_run_side_by_side_than_there_are_places(tmp_path: Path) -> None:
    most, under_way, are_two = 0, 0, asyncio.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        if under_way == 2:
            are_two.set()
        await are_two.wait()
        await received(reader)
        under_way -= 1
        writer.write(OK)
        writer.close()

    async with listening(respond) as server, client_of(tmp_path, server.url, concurrent=2) as made:
        await asyncio.gather(*(made.request("GET", "nodes", "/x") for _ in range(6)))
    assert most == 2


async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a byte every ten seconds, for 50 s, and then nothing."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(5):
        await later(10)
        writer.write(b"1\r\n\n\r\n")
    await reader.read()


@virtual_time
@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        # a read lasts as long as bytes come
        pytest.param({}, 50 + 15, id="a read"),
        pytest.param({"body": {}}, 35, id="a write"),
        pytest.param({"seconds": 3.0}, 3, id="a read with an end"),
        pytest.param({"seconds": 3.0, "body": {}}, 3, id="a write with its own end"),
        pytest.param(None, 50 + 90, id="a watch, for longer than between two bookmarks"),
    ],
)
async def test_how_long_a_response_is_waited_for(
    options: dict[str, Any] | None, seconds: float, tmp_path: Path
) -> None:
    clock = asyncio.get_running_loop().time
    async with listening(drips) as server, client_of(tmp_path, server.url, read_seconds=15.0) as made:
        began = clock()
        with pytest.raises(ApiError, match=r"no response within|nothing has come for"):
            await (_watched(made) if options is None else made.request("PUT", "nodes", "/x", **options))
        assert clock() - began == pytest.approx(seconds, abs=1)
