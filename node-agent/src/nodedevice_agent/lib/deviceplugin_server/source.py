"""What a plugin host asks of whoever knows the devices, and the list of them that changes under way."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from nodedevice_agent.lib.deviceplugin_server.values import ContainerAllocation, PluginDevice

Devices = tuple[PluginDevice, ...]
# reason and message
Trouble = tuple[str, str]


class DeviceList:
    """The latest complete list of devices, and a way to be told of each newer one.

    A watcher that is slower than the changes gets the newest list only: each list replaces the one before it, so nothing
    is lost by leaving one out.
    """

    def __init__(self) -> None:
        self.latest: Devices = ()
        # what is wrong with the whole: a word and a sentence; empty when nothing is
        self.trouble: Trouble = ("", "")
        self._changed = asyncio.Event()

    def publish(self, devices: Iterable[PluginDevice], trouble: Trouble = ("", "")) -> bool:
        """Replace the list; answers whether that changed it."""
        fresh = tuple(devices)
        if (fresh, trouble) == (self.latest, self.trouble):
            return False
        self.latest, self.trouble = fresh, trouble
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def watch(self) -> AsyncIterator[Devices]:
        """The list as it is now, then each that differs from the one given before."""
        given: tuple[Devices, Trouble] | None = None
        while True:
            changed = self._changed
            if (self.latest, self.trouble) != given:
                given = (self.latest, self.trouble)
                yield self.latest
            else:
                await changed.wait()


class DeviceSource(Protocol):
    """Where a plugin's devices come from."""

    resource_name: str
    devices: DeviceList
    # whether preferred() is worth asking
    prefers: bool

    def refresh(self) -> None:
        """Look once and publish, so that the first list sent is the true one. May raise OSError."""

    async def run(self) -> None:
        """Keep the list right until cancelled."""

    def allocate(self, device_ids: Iterable[str]) -> ContainerAllocation:
        """What a container with these devices needs. Raises AllocationRefused."""

    def preferred(self, available: Iterable[str], must_include: Iterable[str], size: int) -> tuple[str, ...]:
        """Which of the available devices to hand out together. Raises AllocationRefused."""
