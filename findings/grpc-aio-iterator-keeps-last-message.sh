#!/bin/sh
# A stream of grpc.aio that is iterated keeps its last message in memory until the next one comes; read() does not.
#
# Software: grpcio 1.85.1 (Python), grpc.aio.
# Documented: a streaming call is read by `async for`, or by read(); nothing says that they differ in what they keep.
# Expected: a message that the program has let go of is freed, while the program waits for the next one.
# Seen: with `async for` it is freed when the next message comes. ListAndWatch of a device plugin may send nothing for weeks, and
# its last list has up to 16 MiB.
#   async for: kept
#   read(): freed
#
# Exits with 0 while this is so, and with 1 once it has changed. Needs Python 3.11 or later with venv, and a Python package index.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check grpcio==1.85.1
cat >main.py <<'PY'
import asyncio
import gc
import weakref

import grpc
import grpc.aio


class Message:
    """Protobuf messages take no weak references; this one does."""

    def __init__(self, octets):
        self.octets = octets


async def stream(request, context):
    yield b"x" * 1_000_000
    await asyncio.Event().wait()


async def is_kept(channel, iterates):
    call = channel.unary_stream("/service/Stream", response_deserializer=Message)(b"")
    following = call.__aiter__().__anext__ if iterates else call.read
    message = await following()
    reference = weakref.ref(message)
    del message
    waiting = asyncio.ensure_future(following())
    await asyncio.sleep(0.5)
    gc.collect()
    kept = reference() is not None
    waiting.cancel()
    call.cancel()
    return kept


async def main():
    server = grpc.aio.server()
    method = grpc.unary_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("service", {"Stream": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for label, iterates in (("async for", True), ("read()", False)):
            print(f"{label}: {'kept' if await is_kept(channel, iterates) else 'freed'}")
    await server.stop(None)


asyncio.run(main())
PY
venv/bin/python main.py | tee output
cat >expected <<'TEXT'
async for: kept
read(): freed
TEXT
cmp output expected || { echo "the behaviour has changed"; exit 1; }
