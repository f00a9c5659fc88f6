"""A library that retries in silence a watch to which it has no right: that is reported as if we had opened it."""

import contextlib

import aiohttp
import pytest
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.unit.operator.kube.api_server import Server


async def get(client: Client, url: str) -> None:
    async with client.lend_session() as lent:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with lent.get(url):
                pass


async def test_a_forbidden_watch_is_said_once_until_it_is_allowed(
    server: Server, client: Client, health: ApiHealth, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(403, {}), (403, {}), (200, {})]
    for _ in range(2):
        await get(client, f"{server.url}/apis/g/v1/things?watch=true")
        assert health.problems() == ("API server forbids watch things",)
    assert [record.message.split(";")[0] for record in caplog.records if record.levelname == "ERROR"] == [
        "API server denies access"
    ]
    await get(client, f"{server.url}/apis/g/v1/things?watch=true")
    assert health.problems() == ()


async def test_what_is_no_watch_is_not_reported(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {})]
    await get(client, f"{server.url}/apis/g/v1/things")
    assert health.problems() == ()
