"""A Publisher for tests of its NodeDevices: the same status always, and no disk."""

import asyncio
from collections.abc import Mapping

from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_agent.kube.write_queue import WriteQueue
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.unit.node_agent.devicemanager.scenario import Scenario


class ManagerOnly(PluginHost):
    """That manager, and nothing else of a host."""

    def __init__(self, scenario: Scenario) -> None:
        self.manager = scenario.manager


class FixedStatus(Publisher):
    def __init__(self, cluster: KubeClient, *, total: int = 0) -> None:
        super().__init__(cluster, "n1", "none")
        # a loop's clock, as virtual time has one
        self.writes = WriteQueue(asyncio.get_running_loop().time)
        self._host = ManagerOnly(Scenario.with_plugin(1))
        self.status = NodeDeviceStatus(total=total)
        self.cordoned_ids: frozenset[str] = frozenset()

    async def saved(self) -> None:
        """Nothing is ever unsaved."""

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        return StatusMaker(lambda: self.status, False)

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """Cordons decide nothing here."""
        self.cordoned_ids = frozenset(in_spec)
