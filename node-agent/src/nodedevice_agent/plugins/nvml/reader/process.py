"""The reader as a child process, and its successor. A reader that is silent for too long is killed.

Only a new NVML session sees GPUs that came back or changed. So a second reader starts while the first one goes on, and takes over
once it has its inventory: no event is missed in between, and a reader that cannot read the driver never takes over.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.plugins.nvml.reader.messages import Found, Message, Orders, Problem, ReaderOptions

log = logging.getLogger(__name__)

_MODULE = "nodedevice_agent.plugins.nvml.reader"
# sixteen GPUs with all their links are some 20 KiB
_MAX_LINE_BYTES = 4 * 1024 * 1024
_SHOWN_BYTES = 2000
_KILL_SECONDS = 5.0
_SILENCE_SECONDS = 10.0


class ReaderFailed(Exception):
    """The reader exited, was silent for too long, or sent an invalid message."""


class ReaderProcess:
    """One reader process. Always call end()."""

    def __init__(self, process: asyncio.subprocess.Process, silence_seconds: float) -> None:
        self._process = process
        self._silence_seconds = silence_seconds
        self._ordered = Orders()
        self._stderr = b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, options: ReaderOptions, silence_seconds: float) -> "ReaderProcess":
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE, msgspec.json.encode(options).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_LINE_BYTES,
        )
        return cls(process, silence_seconds)

    async def next_message(self) -> Message | None:
        """None once it has exited normally. Raises ReaderFailed."""
        output = self._process.stdout
        if output is None:
            raise ReaderFailed("no standard output")
        try:
            async with asyncio.timeout(self._silence_seconds):
                line = await output.readline()
        except TimeoutError:
            raise ReaderFailed(f"silent for {self._silence_seconds:g} s") from None
        except ValueError:
            raise ReaderFailed("message too long") from None
        if not line:
            await self._check_end()
            return None
        try:
            message: Message = decode(line, Message)
            return message
        except Undecodable as error:
            raise ReaderFailed(f"invalid message: {error}") from None

    async def inventory(self) -> Found | Problem | None:
        """The inventory, or the problem with it; None if it exits first. Raises ReaderFailed."""
        message = await self.next_message()
        while message is not None and not isinstance(message, Found | Problem):
            message = await self.next_message()
        return message

    def order(self, orders: Orders) -> None:
        """Send new orders. Does nothing after the process has exited; next_message() reports that."""
        to_it = self._process.stdin
        if orders != self._ordered and to_it is not None and not to_it.is_closing():
            self._ordered = orders
            to_it.write(msgspec.json.encode(orders) + b"\n")

    async def _check_end(self) -> None:
        await self._process.wait()
        await asyncio.wait([self._listening])
        if self._process.returncode:
            raise ReaderFailed(f"exited with status {self._process.returncode}: {self._last_line()}")

    async def end(self) -> bool:
        """Kill it. Returns whether it has exited: one that hangs in the kernel exits only when its call returns."""
        with suppress(ProcessLookupError):
            self._process.kill()
        try:
            async with asyncio.timeout(_KILL_SECONDS):
                await self._process.wait()
        except TimeoutError:
            return False
        finally:
            self._listening.cancel()
        return True

    async def ended(self) -> None:
        """Wait for the exit of a process that end() could not kill."""
        await self._process.wait()

    def _last_line(self) -> str:
        text = self._stderr.decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "no output on standard error"

    async def _listen(self) -> None:
        """Keep the end of its standard error, for crashes of ours or of the library; unread, it would block the process."""
        errors = self._process.stderr
        while errors is not None and (chunk := await errors.read(_SHOWN_BYTES)):
            self._stderr = (self._stderr + chunk)[-_SHOWN_BYTES:]


Successor = tuple[ReaderProcess, Found]


class Succession:
    """The active reader and its successor. Begins with messages(); always call end()."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._silence_seconds = options.poll_seconds + 3 * options.call_seconds + _SILENCE_SECONDS
        self._reader: ReaderProcess | None = None
        self._successor: asyncio.Task[Successor | None] | None = None
        # waits for a reader that cannot be killed; no further one is started meanwhile
        self._stuck: asyncio.Task[None] | None = None

    def order(self, orders: Orders) -> None:
        if self._reader is not None:
            self._reader.order(orders)

    @property
    def may_rescan(self) -> bool:
        return self._successor is None and (self._stuck is None or self._stuck.done())

    def rescan(self) -> None:
        """Start a second reader, which takes over once it has an inventory."""
        self._successor = asyncio.create_task(self._succeed())

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Messages of the active reader, until it exits normally. Raises ReaderFailed and OSError."""
        self._reader = await self._new()
        while (reader := self._reader) is not None:
            listening = asyncio.create_task(reader.next_message())
            try:
                ready = await self._listen(listening)
                if ready is None:
                    message = await listening
                    if message is None:
                        return
                    yield message
                    continue
                self._reader, found = ready
                if await self._end_one(reader):
                    # what the old reader had sent before
                    with suppress(ReaderFailed):
                        message = await listening
                        while message is not None:
                            yield message
                            message = await reader.next_message()
                yield found
            finally:
                listening.cancel()

    async def end(self) -> bool:
        """Kill all readers. Returns whether all have exited: one that hangs in the kernel exits only when its call returns."""
        if self._successor is not None:
            self._successor.cancel()
            (ready,) = await asyncio.gather(self._successor, return_exceptions=True)
            self._successor = None
            if isinstance(ready, tuple):
                await self._end_one(ready[0])
        reader, self._reader = self._reader, None
        if reader is not None:
            await self._end_one(reader)
        return self._stuck is None or self._stuck.done()

    async def ended(self) -> None:
        """Wait for a reader that end() could not kill."""
        if self._stuck is not None:
            await self._stuck

    async def _listen(self, listening: "asyncio.Task[Message | None]") -> Successor | None:
        """Wait for a message (None), or for a successor with an inventory. Raises OSError."""
        while self._successor is not None:
            await asyncio.wait({listening, self._successor}, return_when=asyncio.FIRST_COMPLETED)
            if not self._successor.done():
                return None
            successor, self._successor = self._successor, None
            return successor.result()
        return None

    async def _succeed(self) -> Successor | None:
        """None if it cannot read the driver. Raises OSError."""
        reader = await self._new()
        try:
            message = await reader.inventory()
        except ReaderFailed as error:
            log.warning("cannot rescan GPUs; keeping the current reader", extra={"error": str(error)})
            message = None
        except BaseException:
            await self._end_one(reader)
            raise
        if isinstance(message, Found):
            return reader, message
        await self._end_one(reader)
        return None

    async def _end_one(self, reader: ReaderProcess) -> bool:
        has_ended = await reader.end()
        if not has_ended:
            self._stuck = asyncio.create_task(reader.ended())
        return has_ended

    async def _new(self) -> ReaderProcess:
        return await ReaderProcess.start(self._options, self._silence_seconds)
