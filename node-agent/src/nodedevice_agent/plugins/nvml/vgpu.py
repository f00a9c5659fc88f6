"""Additions to a container with parts of GPUs: limits, and the library that enforces them.

vGPU libraries read these names (HAMi's libvgpu.so and its kin). Nothing here confines a container: that library does, which an
administrator puts on the node.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from nodedevice_api.names import SM_PERCENT_ANNOTATION
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.lib.deviceplugin_server.values import ContainerIdentity, HeldDevices, Mount
from nodedevice_agent.plugins.nvml.devices import Refused
from nodedevice_agent.plugins.nvml.environment import MEMORY_LIMIT, OVERSUBSCRIBE, SM_LIMIT
from nodedevice_agent.plugins.nvml.parts import HeldParts, memory_mib
from nodedevice_agent.plugins.nvml.settings import LimitSettings

PRELOAD: Final = "/etc/ld.so.preload"

_ALL_PERCENT = 100
_REMEDY = "set limits.memory of its shares to false"

# Pod UID and container.
Key = tuple[str, str]


def environment(held: Sequence[HeldParts], limits: LimitSettings, sm_percent: int) -> dict[str, str]:
    """The variables except the cache's. A memory limit has the GPU's index in the container, by PCI bus ID. Raises Refused."""
    env = {SM_LIMIT: str(sm_percent), OVERSUBSCRIBE: str(limits.oversubscribe).lower()}
    if limits.memory:
        ordered = sorted(held, key=lambda one: (one.gpu.pci_bus_id, one.gpu.uuid))
        for index, one in enumerate(ordered):
            env[f"{MEMORY_LIMIT}_{index}"] = f"{memory_mib(one, _REMEDY)}m"
    return env


def mounts(limits: LimitSettings, directory: str) -> tuple[Mount, ...]:
    """Empty without a library. directory: the container's own, of the host; "" if it has none."""
    every = (
        Mount(limits.library, limits.library, read_only=True),
        Mount(limits.preload, PRELOAD, read_only=True),
        Mount(directory, limits.mount_path),
        Mount(limits.lock, limits.lock),
    )
    return tuple(mount for mount in every if mount.host_path) if limits.library else ()


def sm_percent(held: Sequence[HeldParts], limits: LimitSettings, container: ContainerIdentity | None) -> int:
    """The container's request: its pod's annotation, otherwise the setting for each part; 0: no limit. Raises Refused."""
    asked = container.annotations.get(SM_PERCENT_ANNOTATION) if container is not None else None
    if asked is None:
        return min(_ALL_PERCENT, limits.sm_percent * min(one.count for one in held))
    if not (asked.isascii() and asked.isdigit() and len(asked) <= len("100") and 1 <= int(asked) <= _ALL_PERCENT):
        raise Refused(
            f"annotation {SM_PERCENT_ANNOTATION}: {asked[:80]!r} must be a whole number from 1 to 100, the percent of a GPU's "
            "multiprocessors for each container of the pod; delete the pod, and create it with another value",
        )
    return int(asked)


class _Use(Struct, frozen=True):
    """parts: parent and number of each, whichever form of its ID is held."""

    parts: frozenset[tuple[str, int]]
    percent: int


class SmUse:
    """The percent of each GPU's multiprocessors that containers have. is_known: all containers are known."""

    def __init__(self) -> None:
        self.is_known = False
        self._uses: dict[Key, _Use] = {}

    def replaced(self, held: Iterable[HeldDevices]) -> None:
        """Replace all containers; a container keeps its values while its environment is unknown."""
        uses = {}
        for each in held:
            key = each.pod_uid, each.container
            known = self._uses.get(key)
            uses[key] = known if known and not each.env else _Use(_parts(each.device_ids), _percent(each.env))
        self.is_known, self._uses = True, uses

    def take(self, container: ContainerIdentity, device_ids: Iterable[str], percent: int) -> None:
        """The container has that much of each of its GPUs, or Refused is raised."""
        key, wanted = (container.pod_uid, container.container), _Use(_parts(device_ids), percent)
        if percent and not self.is_known:
            raise Refused("it is not known yet what other containers have of the GPU; Allocate is called again")
        for uuid in sorted(_gpus(wanted)):
            left = _ALL_PERCENT - self._used_by_others(uuid, key, wanted)
            if percent > left:
                raise Refused(
                    f"{percent} percent of the multiprocessors of GPU {uuid} wanted, and {max(left, 0)} are left; set the "
                    f"annotation {SM_PERCENT_ANNOTATION} of the pod to as much, or wait for another pod's end",
                )
        self._uses[key] = wanted

    def _used_by_others(self, uuid: str, key: Key, wanted: _Use) -> int:
        """Without containers whose devices this one takes over: init containers of its pod, which have ended before."""
        return sum(
            use.percent
            for other, use in self._uses.items()
            if other != key
            and uuid in _gpus(use)
            and not (other[0] == key[0] and not use.parts.isdisjoint(wanted.parts))
        )


def _gpus(use: _Use) -> set[str]:
    return {parent for parent, _ in use.parts}


def _parts(device_ids: Iterable[str]) -> frozenset[tuple[str, int]]:
    return frozenset(filter(None, map(parent_and_number, device_ids)))


def _percent(env: Mapping[str, str]) -> int:
    text = env.get(SM_LIMIT, "")
    return min(int(text), _ALL_PERCENT) if text.isascii() and text.isdigit() and len(text) <= len("100") else 0
