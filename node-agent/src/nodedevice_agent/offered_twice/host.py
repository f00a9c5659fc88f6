"""Reads device numbers, link targets and the files of CDI devices from this host.

One thread reads at a time; while a disk hangs, the last result counts. Only CDI specifications are opened.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from nodedevice_common.log_once import LogOnce
from nodedevice_common.tasks import apart
from nodedevice_common.threads import in_thread

from nodedevice_agent.lib.cdi_files import CdiFile, CdiFiles, CdiReading, devices_of, read_files
from nodedevice_agent.lib.cdi_specification import CdiNode
from nodedevice_agent.offered_twice.files import MOST_NODES, Host, Node, dev_path

log = logging.getLogger(__name__)

_READ_SECONDS: Final = 1.0
NONE: Final[Mapping[str, Node]] = {}
# of all sources
MOST_PATHS: Final = 16_384
_KINDS: Final = {"c": "char", "b": "block"}
_VIRTUAL: Final = "/sys/devices/virtual/"
_NAME: Final = "DEVNAME="
_MAX_UEVENT: Final = 4096


class HostReader:
    """host_root: the mount point of the host's file tree."""

    def __init__(self, host_root: str = "/") -> None:
        self._root = host_root
        self._host = Host()
        self._files: CdiFiles = {}
        self._problems: frozenset[str] = frozenset()
        self._reading: asyncio.Task[None] | None = None
        self._log = LogOnce(log)

    @property
    def is_reading(self) -> bool:
        """Whether a read has exceeded its time limit; its result counts in the next comparison."""
        return self._reading is not None and not self._reading.done()

    async def read(self, paths: Collection[str], cdi: Collection[str]) -> Host:
        """paths: from /dev on. cdi: names, vendor/class=device."""
        if not paths and not cdi:
            self._files = {}
            return Host()
        if not self.is_reading:
            self._reading = asyncio.create_task(self._read(frozenset(paths), frozenset(cdi)))
        if self._reading is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_READ_SECONDS):
                    await asyncio.shield(self._reading)
        self._log.report("the host's device files cannot be read in time", "slow" if self.is_reading else "")
        return self._host

    async def _read(self, paths: frozenset[str], cdi: frozenset[str]) -> None:
        known, nodes = self._files, self._host.nodes
        with apart("files of devices"):
            self._host, self._files, problems = await in_thread(lambda: read_host(paths, cdi, known, self._root, nodes))
            for problem in sorted(problems - self._problems):
                log.info("CDI specification cannot be read", extra={"error": problem})
            self._problems = problems


def read_host(
    paths: Collection[str], cdi: Collection[str], known: CdiFiles, root: str = "", before: Mapping[str, Node] = NONE
) -> tuple[Host, CdiFiles, frozenset[str]]:
    """Read the files. Also returns the specifications and their problems. before: the former files."""
    reading = read_files(root, known, {name.partition("=")[0] for name in cdi}) if cdi else CdiReading()
    devices = devices_of(reading.files)
    of_cdi: dict[str, tuple[Node, ...]] = {}
    for name in cdi:
        kind, _, device_name = name.partition("=")
        if (found := devices.get((kind, device_name))) is not None:
            of_cdi[name] = tuple(_nodes(found[0], found[1].container_edits.device_nodes))[:MOST_NODES]
    wanted = dict.fromkeys([*sorted(paths), *(node.path for nodes in of_cdi.values() for node in nodes)])
    nodes = {path: _node(path, root, before.get(path)) for path in [*wanted][:MOST_PATHS]}
    return Host(nodes, of_cdi), reading.files, reading.problems


def _nodes(file: CdiFile, own: Collection[CdiNode]) -> Iterator[Node]:
    # a file of all devices of a specification identifies none of them
    everybodys = file.edits.device_nodes if len(file.devices) == 1 else ()
    for node in (*own, *everybodys):
        if path := dev_path(node.on_host):
            yield Node(path, node.number)


def _node(path: str, root: str, before: Node | None) -> Node:
    """The current state of a file; only its path if it is missing or not a device file. before: the former state."""
    try:
        found = os.stat(root + path)
        if before is not None and before.inode == (found.st_dev, found.st_ino, found.st_rdev):
            return before
        target = os.path.realpath(root + path)
    except (OSError, ValueError):
        return Node(path)
    kind = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        return Node("")
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    shown, device = dev_path(target), f"{root}/sys/dev/{_KINDS[kind]}/{number}"
    kernels = _kernels_name(device) if _VIRTUAL in os.path.realpath(device) else ""
    is_invented = bool(kernels) and not kernels[-1].isdigit()
    is_copy = is_invented and kernels != shown
    inode = found.st_dev, found.st_ino, found.st_rdev
    return Node(path, f"{kind}{number}", shown, is_own=is_copy or not is_invented, is_copy=is_copy, inode=inode)


def _kernels_name(device: str) -> str:
    """The name of the kernel's file for a device; "" without one. device: in sysfs."""
    try:
        with open(f"{device}/uevent", "rb") as file:
            lines = os.fsdecode(file.read(_MAX_UEVENT)).splitlines()
    except OSError:
        return ""
    return next((f"/dev/{line.removeprefix(_NAME)}" for line in lines if line.startswith(_NAME)), "")
