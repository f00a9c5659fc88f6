"""Writes through the gate: counted and sent while it is open, not a byte of them once it is closed."""

import asyncio
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_operator.errors import NotLeading
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteGate
from nodedevice_operator.metrics.metrics import Metrics

from tests.unit.operator.kube.test_client import Server, kubeconfig


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class LateGate(WriteGate):
    """Closes after so many questions: between the first check and the sending, say."""

    def __init__(self, questions: float) -> None:
        super().__init__()
        self._questions = questions

    @property
    def is_open(self) -> bool:
        self._questions -= 1
        return self._questions >= 0


def client(server: Server, folder: Path, gate: WriteGate) -> Client:
    return Client(credentials.load(kubeconfig(folder, server.url)), ApiHealth(server.url), Metrics().writes, gate)


def test_it_is_closed_at_first_and_opens_until_a_moment() -> None:
    now = [10.0]
    gate = WriteGate(lambda: now[0])
    assert not gate.is_open
    gate.open_until(11)
    assert gate.is_open
    now[0] = 11
    assert not gate.is_open
    gate.open_for_good()
    now[0] = 1e12
    assert gate.is_open
    gate.close()
    assert not gate.is_open


@pytest.mark.parametrize("verb", ["PATCH", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("questions", [0, 1])
async def test_no_write_is_sent_through_a_closed_gate(
    server: Server, tmp_path: Path, verb: str, questions: int
) -> None:
    made = client(server, tmp_path, LateGate(questions))
    with pytest.raises(NotLeading) as refused:
        await made.request(verb, "nodes/status", "/x", body={})
    assert (refused.value.verb, refused.value.what) == (verb, "nodes/status")
    assert server.asked == []
    assert not made.is_busy
    # the connection is as good as new for what may be sent
    server.answers = [(200, {})]
    await made.request("GET", "nodes", "/y")
    made.close()


async def test_a_write_that_is_half_sent_when_it_closes_stays_half_of_one(server: Server, tmp_path: Path) -> None:
    made = client(server, tmp_path, LateGate(2))
    with pytest.raises(NotLeading):
        await made.request("PATCH", "nodes/status", "/x", body={"a": "b"})
    server.answers = [(200, {})]
    await made.request("GET", "nodes", "/y")
    assert [verb for verb, *_ in server.asked if verb != "GET"] == []
    made.close()


async def test_all_is_sent_through_an_open_one(server: Server, tmp_path: Path) -> None:
    made = client(server, tmp_path, LateGate(math.inf))
    server.answers = [(200, {}), (200, {})]
    await made.request("PATCH", "nodes/status", "/x", body={})
    await made.request("GET", "nodes", "/y")
    assert [verb for verb, *_ in server.asked] == ["PATCH", "GET"]
    made.close()


async def test_settled_is_when_no_write_is_out(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = client(server, tmp_path, LateGate(math.inf))
    assert await made.settle(0)
    may_go, is_there = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    send = made._send

    def slow(*request: object) -> bytes:
        loop.call_soon_threadsafe(is_there.set)
        may_go.wait(10)
        return send(*request)  # type: ignore[arg-type]

    monkeypatch.setattr(made, "_send", slow)
    server.answers = [(200, {})]
    writing = asyncio.create_task(made.request("PATCH", "nodes/status", "/x", body={}))
    await is_there.wait()
    assert not await made.settle(0)
    may_go.set()
    assert await made.settle(10)
    await writing
    made.close()
