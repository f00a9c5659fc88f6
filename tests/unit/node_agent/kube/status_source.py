"""Parts around a Publisher: one whose status is the same always and that has no disk, and another source of resources."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.unit.node_agent.devicemanager.scenario import Scenario


class Host(PluginHost):
    """Has the manager of a scenario, and carries out no effect."""

    unsaved = ""

    def __init__(self, scenario: Scenario) -> None:
        self.manager = scenario.manager
        self.now = lambda: scenario.now

    def settle(self) -> None:
        self.manager.settle(self.now())

    def bound_names(self) -> None:
        """It has no bound."""


class FixedStatus(Publisher):
    def __init__(self, cluster: KubeClient, *, total: int = 0) -> None:
        super().__init__(cluster, "n1", clock=asyncio.get_running_loop().time)
        self._host = Host(Scenario.with_plugin(1))
        self.status = NodeDeviceStatus(total=total)
        self.cordoned_ids: frozenset[str] = frozenset()

    async def saved(self) -> None:
        """Nothing is ever unsaved."""

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        return StatusMaker(lambda: self.status, False)

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """Cordons decide nothing here."""
        self.cordoned_ids = frozenset(in_spec)


class FakeSource:
    """It has these names, and notes what it is asked."""

    def __init__(self, *names: str, watch: str = "") -> None:
        self.watch = watch
        self.resources: Mapping[str, Resource] = {name: Resource(name) for name in names}
        self.asked: list[tuple[Any, ...]] = []
        self.is_forgotten = True

    def has(self, resource_name: str) -> bool:
        return resource_name in self.resources

    def remember(self, resource_name: str, status: NodeDeviceStatus) -> None:
        self.asked.append(("remember", resource_name, status.driver))

    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None:
        self.asked.append(("cordoned", resource_name, {*device_ids}))

    def forget(self, resource_name: str) -> bool:
        self.asked.append(("forget", resource_name))
        return self.is_forgotten

    def status_maker(
        self, resource_name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker:
        self.asked.append(("status", resource_name, is_watch_stale))
        return StatusMaker(lambda: NodeDeviceStatus(total=7), False)
