"""What tests of informers share: an informer and its server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.operator.informers.watched import Server, Watched
from tests.unit.operator.kube.api_server import kubeconfig


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    server = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made = Watched(server, kubeconfig(tmp_path, f"http://127.0.0.1:{runner.addresses[0][1]}", token="fresh"))
    yield made
    await made.close()
    server.is_over.set()
    await runner.cleanup()
