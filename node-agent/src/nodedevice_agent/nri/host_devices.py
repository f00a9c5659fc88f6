"""Device files of this host: what a container's device file has to be made like.

They are read each time: a device that was plugged in again may have another number. A directory stands for all device files
below it, and a link for its target, as in a container runtime.
Source: containerd pkg/oci/utils_unix.go, getDevices @ v2.4.2.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import count, islice

from msgspec import Struct
from nodedevice_common import threads

from nodedevice_agent.devicemanager.runtime import InjectionRefused

# a directory of more is a mistake, such as all of /dev
MAX_DEVICES = 1024
# files of any kind, read within a tenth of a second; a /dev has some hundreds, including terminals
MAX_ENTRIES = 8192
# A runtime creates one container at a time: more threads are needed only while file systems hang.
MAX_THREADS = 8
# parts of a /dev that hold no devices for containers
_SKIPPED = frozenset({"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"})


class HostDevice(Struct, frozen=True):
    """below: the path below the requested directory; empty for the path itself. type: c or b. mode: permission bits alone."""

    below: str
    type: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


# by host path
HostDevices = Mapping[str, tuple[HostDevice, ...]]


class HostDeviceStat:
    """A thread that hangs cannot be cancelled, and outlives its connection. So their number is bounded."""

    def __init__(self) -> None:
        self._reads: set[_Read] = set()

    async def stat_devices(self, host_paths: Iterable[str]) -> HostDevices:
        """The device files at each path. The caller sets the timeout. Raises InjectionRefused that names the path."""
        paths = sorted(set(host_paths))
        if not paths:
            return {}
        self._refuse_hanging(paths)
        read = _Read(paths)
        try:
            threads.start(read.run, "host-devices")
        except OSError as exc:
            raise InjectionRefused(f"device {paths[0]} of the host cannot be read: {exc.strerror}") from exc
        self._reads.add(read)
        return await asyncio.wrap_future(read.result)

    def _refuse_hanging(self, paths: Sequence[str]) -> None:
        self._reads = {read for read in self._reads if not read.result.done()}
        hanging = {read.path for read in self._reads}
        for path in paths:
            if path in hanging:
                raise InjectionRefused(
                    f"an earlier read of device {path} of the host has not finished: its file system does not respond; "
                    "free or unmount it, or fix the device plugin that names the path"
                )
        if len(self._reads) >= MAX_THREADS:
            raise InjectionRefused(
                f"{MAX_THREADS} reads of device files of the host hang, one of them at {min(hanging)}: free or unmount their "
                "file systems"
            )


class _Read:
    """One thread that reads one path after another. path: the current one."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.path = paths[0]
        self._paths = paths
        self.result: Future[HostDevices] = Future()
        # done only once the thread ends, even if the caller has stopped waiting
        self.result.set_running_or_notify_cancel()

    def run(self) -> None:
        found: dict[str, tuple[HostDevice, ...]] = {}
        try:
            for path in self._paths:
                self.path = path
                found[path] = stat_device(path)
        except Exception as exc:
            self.result.set_exception(exc)
        else:
            self.result.set_result(found)


def stat_device(host_path: str) -> tuple[HostDevice, ...]:
    """The device files at a path. Blocks as long as the file system does. Raises InjectionRefused that names the path."""
    if not host_path.startswith("/") or "\0" in host_path:
        raise InjectionRefused(f"device {host_path!r} of the host: not an absolute path; fix the device plugin")
    try:
        found = os.stat(host_path)
        if stat.S_ISDIR(found.st_mode):
            devices = tuple(_below(host_path))
        else:
            devices = tuple(device for device in [_device("", found)] if device is not None)
    except OSError as exc:
        raise InjectionRefused(
            f"device {host_path} of the host: {exc.strerror}; is it plugged in, and is the host's /dev mounted in the agent?"
        ) from exc
    if not devices:
        raise InjectionRefused(f"{host_path} of the host is neither a device file nor a directory with device files")
    return devices


def _below(top: str) -> Iterator[HostDevice]:
    """Device files in a directory and its subdirectories, sorted. Refuses more files than devices can need."""
    directories, devices, read = [""], count(1), 0
    while directories:
        below = directories.pop()
        inner = []
        with os.scandir(os.path.join(top, below)) as entries:
            listed = list(islice(entries, MAX_ENTRIES - read + 1))
        read += len(listed)
        _check(top, read, MAX_ENTRIES, "entries")
        for entry in sorted(listed, key=lambda entry: entry.name):
            path = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    inner.append(path)
            elif (device := _entry_device(path, entry)) is not None:
                _check(top, next(devices), MAX_DEVICES, "device files")
                yield device
        directories += reversed(inner)


def _check(top: str, number: int, limit: int, what: str) -> None:
    if number > limit:
        raise InjectionRefused(
            f"directory {top} of the host has more than {limit} {what}; the device plugin has to name devices"
        )


def _entry_device(path: str, entry: os.DirEntry[str]) -> HostDevice | None:
    if entry.name == "console":
        return None
    try:
        return _device(path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None  # unplugged meanwhile


def _device(below: str, found: os.stat_result) -> HostDevice | None:
    """Returns None for any other kind of file."""
    kind = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        return None
    number, mode = found.st_rdev, stat.S_IMODE(found.st_mode) & 0o777
    return HostDevice(below, kind, os.major(number), os.minor(number), mode, found.st_uid, found.st_gid)
