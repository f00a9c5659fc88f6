"""The agent's client of an API server that is a transport of the test."""

from typing import Final

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User
from nodedevice_agent.kube.client import KubeClient
from nodedevice_api.names import AGENT_FIELD_MANAGER

SERVER: Final = "https://10.1.2.3:6443"


def client_of(transport: httpx2.AsyncBaseTransport) -> KubeClient:
    """Nothing but the transport sees its requests."""
    config = KubeConfig.from_one(cluster=Cluster(SERVER), user=User())
    client: AsyncClient = AsyncClient(
        config=config, transport=transport, trust_env=False, field_manager=AGENT_FIELD_MANAGER
    )
    return KubeClient(client, SERVER)
