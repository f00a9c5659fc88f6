"""The reader's process: its messages, its end in each way, and a successor that takes over or does not."""

import asyncio
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    Found,
    Message,
    Orders,
    Problem,
    ReaderOptions,
    Readings,
)
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed, ReaderProcess, Succession

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.plugins.nvml.reader.children import Child
from tests.unit.node_agent.plugins.nvml.reader.children import children as children

pytestmark = virtual_time
OPTIONS = ReaderOptions(5, 2, "/host")
OLD, NEW = Found("1", [Gpu("GPU-a")]), Found("2", [Gpu("GPU-a")])
NOTHING = Readings({})


class TestProcess:
    @pytest.fixture
    async def reader(self, children: list[Child]) -> ReaderProcess:
        return await ReaderProcess.start(OPTIONS, 21)

    async def test_sends_messages_and_ends(self, reader: ReaderProcess, children: list[Child]) -> None:
        children[0].say(OLD, NOTHING)
        children[0].exit(0, b"a warning of the library\n")
        assert [await reader.next_message() for _ in range(3)] == [OLD, NOTHING, None]

    @pytest.mark.parametrize(
        ("output", "status", "errors", "text"),
        [
            (b"", 1, b"", "exited with status 1: no output on standard error"),
            (b"", -11, b"first\nlast\n", "exited with status -11: last"),
            (b"", 1, b"x" * 9000 + b"\nbad \xff", "exited with status 1: bad \ufffd"),
            (b"nonsense\n", 0, b"", "invalid message: "),
            (b'{"type":"nonsense"}\n', 0, b"", "invalid message: "),
            (b"x" * (5 << 20) + b"\n", 0, b"", "message too long"),
        ],
    )
    async def test_fails(
        self, reader: ReaderProcess, children: list[Child], output: bytes, status: int, errors: bytes, text: str
    ) -> None:
        children[0].say(output)
        children[0].exit(status, errors)
        with pytest.raises(ReaderFailed) as failed:
            await reader.next_message()
        assert str(failed.value).startswith(text)

    async def test_is_silent(self, reader: ReaderProcess, children: list[Child]) -> None:
        loop = asyncio.get_running_loop()
        for wait in (20, 20):
            loop.call_later(wait, children[0].say, Alive())
            assert await reader.next_message() == Alive()
        with pytest.raises(ReaderFailed, match=r"^silent for 21 s$"):
            await reader.next_message()
        assert round(loop.time()) == 1061

    async def test_takes_new_orders_until_it_has_exited(self, reader: ReaderProcess, children: list[Child]) -> None:
        reader.order(Orders())
        for _ in range(2):
            reader.order(Orders({"GPU-a": 1.0}))
        reader.order(Orders())
        children[0].stdin.closing = True
        reader.order(Orders({"GPU-a": 2.0}))
        assert children[0].stdin.written == b'{"energy":{"GPU-a":1.0}}\n{"energy":{}}\n'

    @pytest.mark.parametrize("has_exited", [True, False])
    async def test_is_killed(self, reader: Any, children: list[Child], has_exited: bool) -> None:
        if has_exited:
            children[0].exit(0)
        assert await reader.end()
        assert children[0].kills == 1
        await reader.ended()

    async def test_hangs_in_the_kernel(self, reader: Any, children: list[Child]) -> None:
        children[0].ignores_kill = True
        began = asyncio.get_running_loop().time()
        assert not await reader.end()
        assert round(asyncio.get_running_loop().time() - began) == 5
        ended = asyncio.create_task(reader.ended())
        await asyncio.sleep(100)
        assert not ended.done()
        children[0].exit(-9)
        await ended


class Play:
    """A succession, and what it reports."""

    def __init__(self, children: list[Child]) -> None:
        self.children = children
        self.readers = Succession(OPTIONS)
        self.seen: list[Message] = []
        self.task: Any = None

    async def begin(self, *messages: Message | bytes) -> None:
        self.task = asyncio.create_task(self._follow())
        await later(0.01)
        await self.says(self.children[0], *messages)

    async def rescan(self, *messages: Message | bytes) -> Child:
        """The successor, which has sent these."""
        self.readers.rescan()
        await later(0.01)
        return await self.says(self.children[-1], *messages)

    async def says(self, child: Child, *messages: Message | bytes) -> Child:
        child.say(*messages)
        await later(0.01)
        return child

    async def _follow(self) -> None:
        async for each in self.readers.messages():
            self.seen.append(each)


class TestSuccession:
    @pytest.fixture
    def play(self, children: list[Child]) -> Play:
        return Play(children)

    async def test_a_successor_takes_over_without_a_gap(self, play: Play) -> None:
        await play.begin(OLD)
        assert play.readers.may_rescan
        successor = await play.rescan(Alive(), Alive())
        assert not play.readers.may_rescan
        # the first one goes on meanwhile
        await play.says(play.children[0], NOTHING)
        assert play.seen == [OLD, NOTHING]
        # all in one turn of the loop: what the old one sent comes first
        play.children[0].say(Changed(), NOTHING)
        await play.says(successor, NEW, Changed())
        assert play.seen == [OLD, NOTHING, Changed(), NOTHING, NEW, Changed()]
        assert (play.children[0].kills, successor.kills) == (1, 0)
        assert play.readers.may_rescan
        play.readers.order(Orders({"GPU-a": 1.0}))
        assert play.children[0].stdin.written == b""
        assert successor.stdin.written
        assert await play.readers.end()
        assert successor.kills == 1

    @pytest.mark.parametrize(
        ("messages", "status"), [([Problem("DriverFailed", "broken")], None), ([b"nonsense\n"], None), ([], 0), ([], 1)]
    )
    async def test_one_that_cannot_read_the_driver_does_not(
        self, play: Play, messages: list[Message | bytes], status: int | None
    ) -> None:
        await play.begin(OLD)
        successor = await play.rescan(*messages)
        if status is not None:
            successor.exit(status)
        await asyncio.sleep(0.01)
        await play.says(play.children[0], NOTHING)
        assert play.seen == [OLD, NOTHING]
        assert (play.children[0].kills, successor.kills) == (0, 1)
        assert play.readers.may_rescan

    async def test_an_old_one_that_hangs_is_left_behind(self, play: Play) -> None:
        await play.begin(OLD)
        play.children[0].ignores_kill = True
        play.children[0].say(NOTHING)
        await play.rescan(NEW)
        await asyncio.sleep(6)
        assert play.seen == [OLD, NOTHING, NEW]
        # no further one meanwhile
        assert not play.readers.may_rescan
        assert not await play.readers.end()
        ended = asyncio.create_task(play.readers.ended())
        await asyncio.sleep(100)
        assert not ended.done()
        play.children[0].exit(-9)
        await ended
        assert play.readers.may_rescan
        assert await play.readers.end()

    async def test_an_old_one_that_fails_as_it_ends_is_no_failure(self, play: Play) -> None:
        await play.begin(OLD)
        play.children[0].say(Changed(), b"half a mess")
        await play.rescan(NEW)
        assert play.seen == [OLD, Changed(), NEW]

    @pytest.mark.parametrize("messages", [[], [NEW]])
    async def test_all_of_them_end(self, play: Play, messages: list[Message]) -> None:
        await play.begin()
        successor = await play.rescan(*messages)
        assert await play.readers.end()
        assert [child.kills for child in play.children] == [1, 1]
        assert successor.returncode == -9
        assert play.readers.may_rescan
        # twice is no harm
        assert await play.readers.end()
        assert [child.kills for child in play.children] == [1, 1]

    async def test_one_that_cannot_be_started_is_an_error_of_the_system(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await play.begin(OLD)

        async def start(*_: Any, **__: Any) -> Child:
            raise OSError("no more processes")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        play.readers.rescan()
        play.children[0].say(NOTHING)
        with pytest.raises(OSError, match="no more processes"):
            await play.task
        with pytest.raises(OSError, match="no more processes"):
            await anext(Succession(OPTIONS).messages())
