"""Readers that a test plays, in place of processes."""

import asyncio
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.reader.messages import Message


class Pipe:
    def __init__(self) -> None:
        self.written = b""
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written += data


class Child:
    """A reader that a test plays, in place of a process of asyncio."""

    def __init__(self, arguments: tuple[str, ...], options: dict[str, Any]) -> None:
        self.arguments, self.options = arguments, options
        self.stdin = Pipe()
        self.stdout = asyncio.StreamReader(options["limit"])
        self.stderr = asyncio.StreamReader()
        self.returncode: int | None = None
        self.ignores_kill = False
        self.kills = 0
        self._ended = asyncio.Event()

    def say(self, *messages: Message | bytes) -> None:
        for each in messages:
            line = each if isinstance(each, bytes) else msgspec.json.encode(each) + b"\n"
            self.stdout.feed_data(line)

    def exit(self, status: int, errors: bytes = b"") -> None:
        self.returncode = status
        self.stderr.feed_data(errors)
        for stream in (self.stdout, self.stderr):
            stream.feed_eof()
        self._ended.set()

    def kill(self) -> None:
        self.kills += 1
        if self.returncode is not None:
            raise ProcessLookupError
        if not self.ignores_kill:
            self.exit(-9)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """All that were started."""
    started: list[Child] = []

    async def start(*arguments: str, **options: Any) -> Child:
        started.append(Child(arguments, options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return started
