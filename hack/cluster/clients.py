"""Clients of an API server for tests, demos and benchmarks: in no hurry, and past no proxy that the environment names."""

import httpx2
from lightkube import AsyncClient, Client, KubeConfig, SingleConfig

# A crowd of pods that is deleted at once, or an object as big as the API server takes, takes longer on a busy machine than the
# library's ten seconds.
_PATIENCE = httpx2.Timeout(60.0)


def open_client(config: KubeConfig | SingleConfig, field_manager: str | None = None) -> Client:
    """field_manager: of its writes that name none; without it the API server makes one of the program's name."""
    return Client(config, field_manager=field_manager, trust_env=False, timeout=_PATIENCE)


def open_async_client(config: KubeConfig) -> AsyncClient:
    client: AsyncClient = AsyncClient(config, trust_env=False, timeout=_PATIENCE)
    return client
