"""A client of the server in the test, for the tests of requests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.fakes.operator.collaborators import Clock
from tests.unit.operator.kube.api_server import Server, client_of


@pytest.fixture
def health(server: Server) -> ApiHealth:
    return ApiHealth(server.url, Clock())


@pytest.fixture
async def client(server: Server, health: ApiHealth, tmp_path: Path) -> AsyncIterator[Client]:
    (tmp_path / "token").write_text("first\n")
    async with client_of(tmp_path, server.url, {"tokenFile": "token"}, health=health) as made:
        yield made
