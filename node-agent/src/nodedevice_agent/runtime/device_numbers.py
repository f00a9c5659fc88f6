"""Compares the device files of running containers with the host's after devices have changed, and reports differences.

Reads files in separate threads, like container creations: a hanging file system delays nothing else.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.filesystem import is_there
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.runtime.given_files import GivenFile, Number, given_files, is_renumbered

log = logging.getLogger(__name__)

# udevd creates and removes names some moments after the device appears or disappears
_SETTLE_SECONDS = 1.0
_READ_SECONDS = 1.0
_SYSFS = "/sys/dev"
_KINDS = {"c": "char", "b": "block"}


class DeviceNumbers:
    """run() until cancelled. is_due: set when devices or containers may have changed. on_change: called when `found` has changed.

    found: device files whose number is outdated.
    """

    def __init__(self, manager: DeviceManager, on_change: Callable[[], None], sysfs: str = _SYSFS) -> None:
        self.found: tuple[GivenFile, ...] = ()
        self._manager = manager
        self._on_change = on_change
        self._sysfs = sysfs
        self._stat = HostDeviceStat()
        self._reads = FileReads()
        self.is_due = asyncio.Event()

    def of(self, resource_name: str) -> tuple[GivenFile, ...]:
        return tuple(file for file in self.found if file.resource_name == resource_name)

    async def run(self) -> None:
        while True:
            await self.is_due.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self.is_due.clear()
            try:
                await self._compare()
            except Exception:
                # the next run compares again
                self.is_due.set()
                raise

    async def _compare(self) -> None:
        given = tuple(given_files(self._manager))
        numbers = {path: await self._number(path) for path in sorted({file.host_path for file in given})}

        def renumbered() -> tuple[GivenFile, ...]:
            return tuple(file for file in given if is_renumbered(file, numbers[file.host_path], self._has))

        self._set(await self._reads.run(renumbered))

    def _set(self, found: tuple[GivenFile, ...]) -> None:
        before, self.found = self.found, found
        for file in found:
            if file not in before:
                extra = {
                    "pod_uid": file.container.pod_uid,
                    "container": file.container.container,
                    "resource_name": file.resource_name,
                    "path": file.host_path,
                }
                log.error("device file of a container is not its device's any more; restart the container", extra=extra)
        if found != before:
            self._on_change()

    async def _number(self, host_path: str) -> Number | None:
        with suppress(InjectionRefused, TimeoutError):
            async with asyncio.timeout(_READ_SECONDS):
                found = (await self._stat.stat_devices([host_path]))[host_path]
            if len(found) == 1 and not found[0].below:
                return found[0].type, found[0].major, found[0].minor
        return None

    def _has(self, number: Number) -> bool:
        kind, major, minor = number
        return is_there(f"{self._sysfs}/{_KINDS.get(kind, kind)}/{major}:{minor}")
