"""Serves numbers as devices."""

from typing import Any

from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, ContainerIdentity, PluginDevice
from nodedevice_agent.plugins.run import Node


class Numbers(DeviceSource):
    prefers = False

    def __init__(self, settings: Any) -> None:
        self.resource_name: str = settings.resource_name
        self.devices = DeviceList()
        self.reconfigure(settings)

    def reconfigure(self, settings: Any) -> None:
        self.devices.publish(PluginDevice(f"number-{i}", is_healthy=i < 4) for i in range(settings.count))

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        return ContainerAllocation(env={"NUMBERS": ",".join(device_ids)})

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        return tuple(must_include)


async def run(settings: Any, node: Node) -> None:
    source = Numbers(settings)
    await node.serve(source, source.reconfigure)
