"""The agent's client of an API server that the test plays."""

from typing import Final

from nodedevice_agent.kube.client import REQUEST_SECONDS, KubeClient
from nodedevice_common.api_exchange import Sender
from nodedevice_common.api_transport import Transport
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.settings import Settings

SERVER: Final = "http://10.1.2.3:8001"


def client_of(server: Sender) -> KubeClient:
    """Nothing but the server sees its requests."""
    credentials = Credentials(Settings(server=SERVER, origin="a test"), environment={})
    credentials.refresh()
    return KubeClient(Transport(credentials, server, seconds=REQUEST_SECONDS), SERVER)
