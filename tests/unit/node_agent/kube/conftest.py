"""The agent's client of the API server that a file's fixture `server` plays."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from nodedevice_agent.kube.client import KubeClient

from tests.fakes.api_client import client_of


@pytest.fixture
async def cluster(server: httpx2.AsyncBaseTransport) -> AsyncIterator[KubeClient]:
    made = client_of(server)
    yield made
    await made.close()
