"""A Publisher for tests of its NodeDevices: the same status always, and no disk."""

from typing import Any

from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import Publisher


class FixedStatus(Publisher):
    def __init__(self, cluster: KubeClient, **numbers: int) -> None:
        super().__init__(cluster, "n1", "none")
        self.status: dict[str, Any] = {**numbers, "conditions": []}
        self.cordoned_ids: frozenset[str] = frozenset()

    async def saved(self) -> None:
        """Nothing is ever unsaved."""

    def desired_status(self, resource_name: str, observed: dict[str, Any], wall_time: str) -> dict[str, Any]:
        return self.status

    def cordoned(self, resource_name: str, device_ids: frozenset[str]) -> None:
        """Cordons decide nothing here."""
        self.cordoned_ids = device_ids
