"""Writes through the fence: counted and sent while it is open, not a byte of them once it is closed."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_kube.api_errors import NotLeading
from nodedevice_operator.kube.write_fence import WriteFence

from tests.fakes.http_peer import OK, listening, received
from tests.fakes.operator.collaborators import open_fence
from tests.unit.operator.kube.api_server import Server, client_of


class LateFence(WriteFence):
    """Closes after so many questions: between the first check and the sending, say."""

    def __init__(self, questions: int) -> None:
        super().__init__()
        self._questions = questions

    @property
    def is_open(self) -> bool:
        self._questions -= 1
        return self._questions >= 0


def test_it_is_closed_at_first_and_opens_until_a_moment() -> None:
    now = [10.0]
    fence = WriteFence(lambda: now[0])
    assert not fence.is_open
    fence.open_until(11)
    assert fence.is_open
    now[0] = 11
    assert not fence.is_open
    fence.open_for_good()
    now[0] = 1e12
    assert fence.is_open
    fence.close()
    assert not fence.is_open


@pytest.mark.parametrize("verb", ["PATCH", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("questions", [0, 1])
async def test_no_write_goes_through_a_closed_fence(server: Server, tmp_path: Path, verb: str, questions: int) -> None:
    async with client_of(tmp_path, server.url, fence=LateFence(questions)) as made:
        with pytest.raises(NotLeading) as refused:
            await made.request(verb, "nodes/status", "/x", body={})
        assert (refused.value.verb, refused.value.what) == (verb, "nodes/status")
        assert server.asked == []
        # the connection is as good as new for what may be sent
        server.answers = [(200, {})]
        await made.request("GET", "nodes", "/y")


async def test_settled_is_when_no_write_is_out(tmp_path: Path) -> None:
    may_go, is_there = asyncio.Event(), asyncio.Event()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await received(reader)
        is_there.set()
        await may_go.wait()
        writer.write(OK)
        writer.close()

    async with listening(respond) as server, client_of(tmp_path, server.url, fence=open_fence()) as made:
        assert await made.settle(0)
        writing = asyncio.create_task(made.request("PATCH", "nodes/status", "/x", body={}))
        await is_there.wait()
        assert not await made.settle(0)
        may_go.set()
        assert await made.settle(60)
        await writing
