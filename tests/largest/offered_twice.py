"""The most devices that can be offered twice: two plugins with the same ones, and a pool with as many attributes as are kept."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.dra.pools import MAX_ATTRIBUTES, Pool
from nodedevice_agent.offered_twice.compare import MOST_DEVICES
from nodedevice_agent.offered_twice.host import HostReader
from nodedevice_agent.offered_twice.offers import PoolOffer
from nodedevice_agent.offered_twice.watch import OfferedTwice

# of each plugin, in steps that are as long for more
DEVICES: Final = 16_384
_OF_POOL: Final = 4096


class _Sources:
    are_known = True

    def __init__(self, manager: DeviceManager, pool: PoolOffer) -> None:
        self._manager, self._pool = manager, pool

    def managed(self) -> Iterator[tuple[DeviceManager, Resource, bool]]:
        for resource in self._manager.resources.values():
            yield self._manager, resource, False

    def pools(self) -> Iterator[PoolOffer]:
        yield self._pool


async def devices_that_are_offered_twice(folder: Path) -> AsyncIterator[None]:
    """All of them are; then each list is another one."""
    manager = DeviceManager(0.0)
    for endpoint, name in enumerate(("one.example.com/gpu", "other.example.com/gpu")):
        manager.connected(name, endpoint, PluginOptions(), 0.0)
        manager.listed(name, endpoint, accept(Device(_uuid(number)) for number in range(1, DEVICES + 1)), 0.0)
    more = {f"attribute{number}": "value" for number in range(MAX_ATTRIBUTES // _OF_POOL - 1)}
    devices = {
        f"d{number}": SimpleNamespace(attributes={**more, "uuid": _uuid(number)}, taints=())
        for number in range(1, _OF_POOL + 1)
    }
    pool = cast(Pool, SimpleNamespace(driver="driver.example.com", devices=devices))
    sources: Any = _Sources(manager, PoolOffer("driver.example.com/devices", pool, devices.keys(), {}))
    twice = OfferedTwice(sources, HostReader(str(folder)), lambda name: None)
    yield
    twice._set(await twice._compared(), are_known=True)
    condition = twice.conditions.get("one.example.com/gpu")
    assert condition is not None
    assert f"{MOST_DEVICES} or more devices" in condition[2]


def _uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"
