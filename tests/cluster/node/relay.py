"""Relays TCP connections, byte for byte, from one address to another.

Run as a script by its path: `python -I -S relay.py LISTEN_HOST LISTEN_PORT TO_HOST TO_PORT`. It prints `listening`
when it does. Each side's end of stream is passed on as well, so that neither waits for the other forever.
"""

import asyncio
import contextlib
import sys

_CHUNK_BYTES = 256 * 1024


async def main() -> None:
    host, port, to_host, to_port = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(to_host, to_port)
        except OSError as exc:
            # the server is down: the client sees a closed connection, as it would without the relay
            print(f"{to_host}:{to_port}: {exc}", file=sys.stderr, flush=True)
            writer.transport.abort()
            return
        await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))

    server = await asyncio.start_server(serve, host, port)
    print("listening", flush=True)
    async with server:
        await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            return
    # the other side does not wait for a broken side
    writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(main())
