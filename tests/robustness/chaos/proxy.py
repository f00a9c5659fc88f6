"""A TCP proxy before the API server, whose connections can be cut in the middle of a watch.

Passes bytes, TLS and all: whoever speaks through it notices nothing until it is cut.
"""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

_CHUNK = 65536


class Proxy:
    """Listens on loopback in a thread of its own, for the length of a block."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def cut(self) -> int:
        """Cut every connection that is open now; how many."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    async def _cut(self) -> int:
        cut = list(self._open)
        for writer in cut:
            writer.transport.abort()
        return len(cut) // 2

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._open |= pair
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            self._open -= pair
            for end in pair:
                end.transport.abort()

    async def _close(self) -> None:
        """Listen no more, cut all, and wait until each connection has noticed."""
        assert self._server is not None
        self._server.close()
        await self._cut()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one end closes; the other is closed then."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.transport.abort()
