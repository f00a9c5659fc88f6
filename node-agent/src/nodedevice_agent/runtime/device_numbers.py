"""Compares the device files of running containers with the host's after devices have changed, and reports differences."""

import asyncio
import logging
import os
import stat
from collections.abc import Callable

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.filesystem import is_there
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.runtime.given_files import GivenFile, Number, given_files, is_renumbered

log = logging.getLogger(__name__)

# udevd creates and removes names some moments after the device appears or disappears
_SETTLE_SECONDS = 1.0
_SYSFS = "/sys/dev"
_KINDS = {"c": "char", "b": "block"}
_TYPES = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}


class DeviceNumbers:
    """is_due: set when devices or containers may have changed. on_change: called when `found`, the outdated files, has changed."""

    def __init__(self, manager: DeviceManager, on_change: Callable[[], None]) -> None:
        self.found: tuple[GivenFile, ...] = ()
        self._manager = manager
        self._on_change = on_change
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

        def renumbered() -> tuple[GivenFile, ...]:
            numbers = {path: _number(path) for path in sorted({file.host_path for file in given})}
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

    def _has(self, number: Number) -> bool:
        kind, major, minor = number
        return is_there(f"{_SYSFS}/{_KINDS.get(kind, kind)}/{major}:{minor}")


def _number(host_path: str) -> Number | None:
    """Return the number of a device file; None if it is missing, or another kind of file."""
    try:
        status = ask(os.stat, host_path)
    except (OSError, ValueError):
        return None
    kind = _TYPES.get(stat.S_IFMT(status.st_mode))
    return None if kind is None else (kind, os.major(status.st_rdev), os.minor(status.st_rdev))
