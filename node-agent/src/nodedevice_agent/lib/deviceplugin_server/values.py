"""Values of a device plugin: the devices it lists, and what a container needs to use them."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One device as a plugin lists it.

    reason and message: why it is unhealthy. attributes: further properties, sorted by name.
    """

    id: str
    is_healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    reason: str = ""
    message: str = ""
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device file of the host, and where a container sees it."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host, and where a container sees it."""

    host_path: str
    container_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What one container needs for its devices. cdi_devices: fully qualified names, vendor/class=device."""

    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class AllocationRefused(Exception):
    """The request cannot be served; the text names the reason."""

    def __init__(self, resource_name: str, message: str) -> None:
        super().__init__(f"{resource_name}: {message}")
        self.resource_name = resource_name


class UnknownDevices(AllocationRefused):
    """Device IDs that the plugin does not list, or no longer lists."""

    _SHOWN = 10

    def __init__(self, resource_name: str, device_ids: tuple[str, ...]) -> None:
        shown = ", ".join(ascii(device_id[:80]) for device_id in device_ids[: self._SHOWN])
        more = f" and {len(device_ids) - self._SHOWN} more" if len(device_ids) > self._SHOWN else ""
        super().__init__(resource_name, f"no such device: {shown}{more}; ask for devices of the latest list")
        self.device_ids = device_ids


def known_ids(resource_name: str, device_ids: Iterable[str], known: Container[str]) -> list[str]:
    """These device IDs, sorted, each once. Raises UnknownDevices."""
    wanted = sorted(set(device_ids))
    unknown = tuple(device_id for device_id in wanted if device_id not in known)
    if unknown:
        raise UnknownDevices(resource_name, unknown)
    return wanted
