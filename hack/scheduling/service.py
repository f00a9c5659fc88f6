"""One address for several extenders: connects to a ready one, as a Service does."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

import aiohttp

_PROBE_SECONDS = 0.2
_CHUNK = 65536


class Service:
    """Connections go to the extender that was ready last; open connections stay, as with kube-proxy.

    addresses: of each extender, HOST:PORT of its probes and of its verbs.
    """

    def __init__(self, addresses: Sequence[tuple[str, str]]) -> None:
        self._addresses = addresses
        self._target = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks.add(asyncio.create_task(self._probe()))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def wait_ready(self) -> None:
        """Wait until an extender leads."""
        while not self._target:
            await asyncio.sleep(_PROBE_SECONDS)

    async def _probe(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROBE_SECONDS * 2)) as session:
            while True:
                ready = [verbs for probes, verbs in self._addresses if await _is_ready(session, probes)]
                self._target = ready[-1] if ready else ""
                await asyncio.sleep(_PROBE_SECONDS)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.partition(":")
        try:
            there, back = await asyncio.open_connection(host, int(port or 0))
        except OSError:
            writer.close()
            return
        both = [asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(there, writer))]
        self._tasks.update(both)
        await asyncio.wait(both)
        self._tasks.difference_update(both)


async def _is_ready(session: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with session.get(f"http://{address}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
