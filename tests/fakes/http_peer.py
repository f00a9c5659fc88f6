"""A server on loopback that does with each connection what a test says; and what a client sends to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Final, NamedTuple

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Received(NamedTuple):
    """line: the first one. headers: names in small letters."""

    line: str
    headers: dict[str, str]
    body: bytes


async def received(reader: asyncio.StreamReader) -> Received:
    """The next request. Raises IncompleteReadError where there is none."""
    line, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    pairs = (header.split(": ", 1) for header in headers)
    named = {name.lower(): value for name, value in pairs}
    return Received(line, named, await reader.readexactly(int(named.get("content-length", 0))))


def answering(*answers: bytes, seen: list[Received] | None = None) -> Peer:
    """Answers the requests of a connection one after the other, and ends it after the last."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for octets in answers:
            request = await received(reader)
            if seen is not None:
                seen.append(request)
            writer.write(octets)
        await writer.drain()

    return answer


class Listening:
    """port: of the server. connections: how many there were. ended: set when the last one has ended. problem: its error."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.ended = asyncio.Event()
        self.problem: BaseException | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def listening(*peers: Peer, tls: SSLContext | None = None) -> AsyncIterator[Listening]:
    """peers: for one connection after the other; the last one for all others, too."""
    made = Listening()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        made.connections += 1
        made.ended.clear()
        try:
            await peers[min(made.connections, len(peers)) - 1](reader, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError) as exc:
            # The callback that asyncio has at the task takes no cancellation.
            made.problem = exc
        finally:
            made.ended.set()
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
