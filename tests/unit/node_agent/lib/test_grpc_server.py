"""A connection that does nothing ends; a client whose call comes later does not notice. Requests have a length."""

import ast
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.lib import grpc_server
from nodedevice_agent.lib.filesystem import grpc_target

AGENT = Path(grpc_server.__file__).parents[1]
Client = tuple[grpc.aio.Channel, "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"]


async def answer(request: bytes, _: object) -> bytes:
    return request


@asynccontextmanager
async def asking(folder: Path, request_bytes: int) -> AsyncIterator[Client]:
    """A server with these bounds, and a client of it."""
    server = grpc.aio.server(options=grpc_server.options(request_bytes))
    asked: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Ask": asked}),))
    server.add_insecure_port(grpc_target(folder / "s.sock"))
    await server.start()
    try:
        async with grpc.aio.insecure_channel(grpc_target(folder / "s.sock")) as channel:
            yield channel, channel.unary_unary("/test/Ask")
    finally:
        await server.stop(None)


async def test_connections_that_do_nothing_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "IDLE_MILLISECONDS", 50)
    monkeypatch.setattr(grpc_server, "HANDSHAKE_MILLISECONDS", 50)
    async with asking(tmp_path, 1024) as (channel, ask):
        # one that says nothing at all
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s.sock")
        async with asyncio.timeout(60):
            while await reader.read(1024):
                pass
        writer.close()
        async with asyncio.timeout(60):
            for _ in range(2):
                assert await ask(b"hello") == b"hello"
                state = channel.get_state()
                while state != grpc.ChannelConnectivity.IDLE:
                    await channel.wait_for_state_change(state)
                    state = channel.get_state()


async def test_a_request_has_so_many_bytes_and_no_more(tmp_path: Path) -> None:
    async with asking(tmp_path, 1024) as (_, ask):
        assert len(await ask(b"x" * 1024, timeout=60)) == 1024
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await ask(b"x" * 1025, timeout=60)
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_every_server_of_the_agent_has_these_bounds() -> None:
    made = {
        str(path.relative_to(AGENT)): [ast.unparse(keyword.value).partition("(")[0] for keyword in call.keywords]
        for path in AGENT.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "grpc.aio.server"
    }
    assert len(made) >= 3
    assert {tuple(options) for options in made.values()} == {("options",)}
