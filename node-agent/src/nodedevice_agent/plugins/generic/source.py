"""The generic plugin: device files of the host as devices, which come and go with the files.

A device is healthy as long as its files exist. Behaves like the generic device plugins in use, with one difference: paths of
one device are joined by name, not by position (see devices.py).
"""

import logging
import os
import stat
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from nodedevice_agent.lib.deviceplugin_server.server import DeviceList
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, ContainerIdentity
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.plugins.generic.devices import FoundFile, GenericDevice, allocate, generic_devices
from nodedevice_agent.plugins.patterns import Captures, matched, wildcard_count
from nodedevice_agent.plugins.settings import GenericSettings

log = logging.getLogger(__name__)

# A much longer list does not fit into a message of the API; a pattern with so many matches is a mistake.
MAX_DEVICES = 10_000
_RESCAN_SECONDS = 30.0


class GenericSource:
    """Device files of one resource."""

    prefers = False

    def __init__(self, settings: GenericSettings, host_root: str, watcher: FileWatcher) -> None:
        self.resource_name = settings.resource_name
        self.devices = DeviceList(settings.part_rules)
        self._groups = settings.groups
        self._patterns = tuple(dict.fromkeys(path.path for group in settings.groups for path in group.paths))
        self._root = host_root.rstrip("/")
        self._watcher = watcher
        self._by_id: dict[str, GenericDevice] = {}
        self._directories: set[Path] = set()
        self._is_truncated = False

    def refresh(self) -> None:
        """Find the files and publish their devices."""
        self._directories = set()
        found = {pattern: self._matches(pattern) for pattern in self._patterns}
        by_id = generic_devices(self._groups, found, are_parts=self.devices.part_rules is not None)
        is_truncated = len(by_id) > MAX_DEVICES
        if is_truncated and not self._is_truncated:
            log.error(
                "too many devices; listing only the first ones; narrow the paths",
                extra={"resource_name": self.resource_name, "found": len(by_id), "listed": MAX_DEVICES},
            )
        self._is_truncated = is_truncated
        self._by_id = dict(list(by_id.items())[:MAX_DEVICES])
        if self.devices.publish(device.listed for device in self._by_id.values()):
            log.info("devices changed", extra={"resource_name": self.resource_name, "devices": len(self._by_id)})

    async def run(self) -> None:
        """Scan at once, at each event in the directories of the patterns, and every half minute."""
        subscription = self._watcher.subscribe()
        try:
            while True:
                self._follow_and_refresh(subscription)
                await subscription.wait(_RESCAN_SECONDS)
        finally:
            subscription.close()

    def _follow_and_refresh(self, subscription: Subscription) -> None:
        """Follow before reading, so that a change in between is an event. Reading may find further directories to follow."""
        followed: set[Path] | None = None
        while followed != self._directories:
            followed = self._directories
            subscription.follow(followed)
            self.refresh()

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        """Raises AllocationRefused."""
        return allocate(self.resource_name, self._by_id, device_ids)

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        """Not offered: the distance between device files is unknown."""
        raise AllocationRefused(self.resource_name, "has no preference among its devices")

    def _matches(self, pattern: str) -> list[FoundFile]:
        """Files that match. Notes the directories whose changes could change that."""
        return [
            file
            for path, captures in self._walk("", (), pattern.strip("/").split("/"))
            if (file := _found_file(self._root, path, captures)) is not None
        ]

    def _walk(self, base: str, captures: Captures, parts: list[str]) -> Iterator[tuple[str, Captures]]:
        literal = list(takewhile(lambda part: not wildcard_count(part), parts))
        path = "/".join([base, *literal])
        if len(literal) == len(parts):
            self._directories.add(Path(self._root + path).parent)
            yield path, captures
            return
        pattern, *below = parts[len(literal) :]
        self._directories.add(Path(f"{self._root}{path}/"))
        for name in _names(f"{self._root}{path}/"):
            captured = matched(pattern, name)
            if captured is not None:
                yield from self._walk(f"{path}/{name}", captures + captured, below)


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        # missing, not a directory, or removed meanwhile: no matches until a file event
        return []


def _found_file(root: str, path: str, captures: Captures) -> FoundFile | None:
    """None for a missing file, or one that is neither a device nor a regular file. Follows links: udev names devices by them."""
    try:
        status = os.stat(root + path)
    except (OSError, ValueError):
        return None
    kind = "char" if stat.S_ISCHR(status.st_mode) else "block" if stat.S_ISBLK(status.st_mode) else ""
    if kind:
        return FoundFile(path, captures, True, _numa_nodes(root, kind, status.st_rdev))
    return FoundFile(path, captures, False) if stat.S_ISREG(status.st_mode) else None


def _numa_nodes(root: str, kind: str, number: int) -> tuple[int, ...]:
    """From sysfs; empty for a device without a bus of its own, or on a machine with one node (-1)."""
    path = f"{root}/sys/dev/{kind}/{os.major(number)}:{os.minor(number)}/device/numa_node"
    try:
        node = int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return ()
    return (node,) if node >= 0 else ()
