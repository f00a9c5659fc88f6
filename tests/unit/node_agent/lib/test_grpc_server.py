"""A connection that does nothing ends; a client whose call comes later does not notice."""

import ast
import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest
from nodedevice_agent.lib import grpc_server
from nodedevice_agent.lib.filesystem import grpc_target

AGENT = Path(grpc_server.__file__).parents[1]


async def answer(request: bytes, _: object) -> bytes:
    return request


async def test_connections_that_do_nothing_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "IDLE_MILLISECONDS", 50)
    monkeypatch.setattr(grpc_server, "HANDSHAKE_MILLISECONDS", 50)
    server = grpc.aio.server(options=grpc_server.options(1024))
    asked: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Ask": asked}),))
    server.add_insecure_port(grpc_target(tmp_path / "s.sock"))
    await server.start()
    try:
        # one that says nothing at all
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s.sock")
        async with asyncio.timeout(60):
            while await reader.read(1024):
                pass
        writer.close()
        async with grpc.aio.insecure_channel(grpc_target(tmp_path / "s.sock")) as channel, asyncio.timeout(60):
            ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Ask")
            for _ in range(2):
                assert await ask(b"hello") == b"hello"
                state = channel.get_state()
                while state != grpc.ChannelConnectivity.IDLE:
                    await channel.wait_for_state_change(state)
                    state = channel.get_state()
    finally:
        await server.stop(None)


def test_every_server_of_the_agent_has_these_bounds() -> None:
    made = {
        str(path.relative_to(AGENT)): [ast.unparse(keyword.value).partition("(")[0] for keyword in call.keywords]
        for path in AGENT.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "grpc.aio.server"
    }
    assert len(made) >= 3
    assert {tuple(options) for options in made.values()} == {("options",)}
