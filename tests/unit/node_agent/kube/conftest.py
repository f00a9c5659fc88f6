"""The agent's client of the API server that a test file's class `Server` plays."""

from collections.abc import AsyncIterator

import pytest
from nodedevice_agent.kube.client import KubeClient
from nodedevice_common.api_exchange import Sender

from tests.fakes.api_client import client_of


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Sender:
    made: Sender = request.module.Server()
    return made


@pytest.fixture
async def cluster(server: Sender) -> AsyncIterator[KubeClient]:
    made = client_of(server)
    yield made
    await made.close()
