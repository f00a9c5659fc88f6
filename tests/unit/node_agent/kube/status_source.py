"""A Publisher for tests of its NodeDevices: the same status always, and no disk."""

from typing import Any, cast
from unittest.mock import AsyncMock, Mock

from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import Publisher


class FixedStatus(Publisher):
    def __init__(self, cluster: KubeClient, **numbers: int) -> None:
        super().__init__(cluster, "n1", "none")
        self.status: dict[str, Any] = {**numbers, "conditions": []}
        # nothing is ever unsaved, and cordons decide nothing
        self.host = cast("PluginHost", Mock(saved=AsyncMock()))

    def desired_status(self, resource_name: str, observed: dict[str, Any], wall_time: str) -> dict[str, Any]:
        return self.status
