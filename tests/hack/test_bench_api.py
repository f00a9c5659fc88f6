"""The benchmarks' client: an API server that has no capacity for a moment ends no benchmark."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from hack.bench.operator import api as module
from hack.bench.operator.api import Api, Refused


async def _asked(
    folder: Path, statuses: list[int], ask: Callable[[Api], Awaitable[object]], body: str | None = None
) -> int:
    """How many requests came; each is answered with the next status, and the body. Raises Refused."""
    came = 0

    async def answer(_: web.BaseRequest) -> web.Response:
        nonlocal came
        came += 1
        return web.Response(status=statuses[min(came, len(statuses)) - 1], text=body)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(_kubeconfig(f"http://{host}:{port}")))
    try:
        async with Api(path) as api:
            await ask(api)
    finally:
        await runner.cleanup()
    return came


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }


def _apply(api: Api) -> Awaitable[bytes]:
    return api.apply("/x", {}, "m")


def _post(api: Api) -> Awaitable[bytes]:
    return api.post("/x", {}, "m")


@pytest.mark.parametrize(
    ("statuses", "ask", "came"),
    [
        pytest.param([429, 429, 200], _apply, 3, id="an apply that is shed"),
        pytest.param([504, 200], _apply, 2, id="an apply that may have been done"),
        pytest.param([429, 201], _post, 2, id="a create that is shed"),
    ],
)
def test_what_can_be_sent_again_is(
    statuses: list[int],
    ask: Callable[[Api], Awaitable[bytes]],
    came: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    assert asyncio.run(_asked(tmp_path, statuses, ask)) == came


@pytest.mark.parametrize(("status", "ask"), [(403, _apply), (504, _post), (503, _apply)])
def test_what_cannot_or_is_refused_again_and_again_is_an_error(
    status: int, ask: Callable[[Api], Awaitable[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    with pytest.raises(Refused, match=f"HTTP {status}"):
        asyncio.run(_asked(tmp_path, [status], ask))


def test_a_watch_that_the_server_cannot_serve_any_longer_ends(tmp_path: Path) -> None:
    """Its last event has a Status, whatever is watched: that is no object of the benchmark's."""
    seen: list[dict[str, str | dict[str, int]]] = []

    async def watch(api: Api) -> None:
        seen.extend([event async for event in api.watch("/x", dict[str, str | dict[str, int]], {})])

    shown = {"type": "ADDED", "object": {"x": 1}}
    error = {"type": "ERROR", "object": {"status": "Failure", "code": 410}}
    body = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in (shown, error))
    assert asyncio.run(_asked(tmp_path, [200], watch, body)) == 1
    assert seen == [shown]
