"""Stands between a container runtime and its NRI plugin, and reports how long the plugin took for each call.

    python -m hack.bench.node.nri_relay LISTEN RUNTIME      one connection; JSON lines when it has ended

Bytes are passed on immediately, with the time. They are decoded at the end, so that decoding takes no time in between. The
figure contains the plugin's work and its way through the kernel; the relay's own part is some hundredths of a millisecond.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodedevice_agent.nri.mux import frame_decoder
from nodedevice_agent.nri.session import PLUGIN_STREAM
from nodedevice_agent.nri.ttrpc import message_decoder
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

_READ_BYTES = 1 << 16
_METHOD = "CreateContainer"


class Passed(NamedTuple):
    """at: perf_counter seconds."""

    at: float
    data: bytes


class Creation(NamedTuple):
    """One container's creation. seconds: from the call's last byte to the last byte of the response."""

    pod: str
    container: str
    seconds: float


def creations(to_plugin: list[Passed], from_plugin: list[Passed]) -> Iterator[Creation]:
    """Calls with their responses; calls without a response are left out."""
    answered = {number: at for at, number, _ in _messages(from_plugin)}
    for at, number, payload in _messages(to_plugin):
        call = ttrpc_pb2.Request.FromString(payload)
        if call.method == _METHOD and number in answered:
            request = api_pb2.CreateContainerRequest.FromString(call.payload)
            yield Creation(request.pod.name, request.container.name, answered[number] - at)


def _messages(passed: list[Passed]) -> Iterator[tuple[float, int, bytes]]:
    """Messages of the stream for calls of the runtime: time of the last byte, number and payload."""
    frames, messages = frame_decoder(), message_decoder()
    for at, data in passed:
        for (stream_id, _), piece in frames.feed(data):
            if stream_id == PLUGIN_STREAM:
                for (_, number, _, _), payload in messages.feed(piece):
                    yield at, number, payload


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: list[Passed]) -> None:
    try:
        while data := await reader.read(_READ_BYTES):
            passed.append(Passed(time.perf_counter(), data))
            writer.write(data)
    except ConnectionError:
        pass  # a killed plugin resets the connection
    finally:
        writer.close()


async def main(listen: Path, runtime: Path) -> None:
    """Relay one connection, then print its creations."""
    ended: asyncio.Future[list[Creation]] = asyncio.get_running_loop().create_future()

    async def accept(from_plugin: asyncio.StreamReader, to_plugin: asyncio.StreamWriter) -> None:
        from_runtime, to_runtime = await asyncio.open_unix_connection(runtime)
        calls: list[Passed] = []
        answers: list[Passed] = []
        await asyncio.gather(_pass_on(from_runtime, to_plugin, calls), _pass_on(from_plugin, to_runtime, answers))
        ended.set_result(list(creations(calls, answers)))

    async with await asyncio.start_unix_server(accept, listen):
        print("listening", flush=True)
        for creation in await ended:
            print(json.dumps(creation._asdict()))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
