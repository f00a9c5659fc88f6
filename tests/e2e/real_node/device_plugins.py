"""Devices for pods on a real node: device plugins in this process, whose devices are real and differ from each other.

Each device ID is a device file of this machine that no container may open by itself; so what a container can open shows which
devices it has. Every answer also sets `GIVEN_<kind>` to the IDs, by which containers lock what they hold.
"""

import asyncio
import json
import os
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.plugin_process import run_until_stopped

# Harmless to open, and refused by a container's device cgroup unless given.
_CANDIDATES = ("fuse", "loop-control", "btrfs-control", "autofs", *(f"loop{number}" for number in range(8)))
_CALL_SECONDS = 60.0
T = TypeVar("T")
Answer = Callable[[Sequence[str]], api_pb2.ContainerAllocateResponse]


@dataclass(frozen=True)
class DeviceFile:
    """number: as `c:10:229`."""

    path: str
    number: str


def device_files() -> list[DeviceFile]:
    """Device files of this machine that can be opened for reading and writing, in a constant order."""
    found = []
    for name in _CANDIDATES:
        path = f"/dev/{name}"
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
            status = os.stat(path)
        except OSError:
            continue
        kind = "b" if stat.S_ISBLK(status.st_mode) else "c"
        found.append(DeviceFile(path, f"{kind}:{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"))
    return found


def make_device_file(path: str | Path, number: str) -> None:
    """With the number of another one; root's alone."""
    kind, major, minor = number.split(":")
    mode = stat.S_IFBLK if kind == "b" else stat.S_IFCHR
    os.mknod(path, mode | 0o600, os.makedev(int(major), int(minor)))


@dataclass(frozen=True)
class Kind:
    """A resource: its devices by ID, and with which permissions they are given. cdi: by name of a CDI device instead."""

    name: str
    files: dict[str, DeviceFile]
    permissions: str = "rw"
    cdi: bool = False

    @property
    def resource(self) -> str:
        return f"e2e.example.com/{self.name}"

    @property
    def env(self) -> str:
        return f"GIVEN_{self.name.upper()}"

    def answer(self, folder: Path) -> Answer:
        """What Allocate answers. folder: of the files that are mounted, seen from the node."""
        return lambda ids: self._by_cdi(ids) if self.cdi else self._plain(ids, folder)

    def path_of(self, device_id: str) -> str:
        """Where the device is in the container."""
        return f"/dev/given/{device_id}"

    def _plain(self, ids: Sequence[str], folder: Path) -> api_pb2.ContainerAllocateResponse:
        return api_pb2.ContainerAllocateResponse(
            envs={self.env: ",".join(ids)},
            annotations={f"e2e.example.com/{self.name}": ",".join(ids)},
            mounts=[
                api_pb2.Mount(container_path=f"/given/{name}", host_path=str(folder / name), read_only=True)
                for name in ids
            ],
            devices=[
                api_pb2.DeviceSpec(
                    container_path=self.path_of(name), host_path=self.files[name].path, permissions=self.permissions
                )
                for name in ids
            ],
        )

    def _by_cdi(self, ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        return api_pb2.ContainerAllocateResponse(
            envs={self.env: ",".join(ids)},
            cdi_devices=[api_pb2.CDIDevice(name=f"e2e.example.com/{self.name}={name}") for name in ids],
        )

    def cdi_specification(self) -> str:
        """What such a plugin writes into a CDI directory."""
        devices = [
            {
                "name": device_id,
                "containerEdits": {
                    "deviceNodes": [{"path": self.path_of(device_id), "hostPath": file.path, "permissions": "rw"}],
                    "env": [f"CDI_{device_id.upper().replace('-', '_')}=yes"],
                },
            }
            for device_id, file in self.files.items()
        ]
        return json.dumps({"cdiVersion": "0.6.0", "kind": f"e2e.example.com/{self.name}", "devices": devices})


def kinds() -> list[Kind]:
    """Three devices to be read and written, one only to be read, one given by CDI. Raises LookupError with too few files."""
    files = device_files()
    if len(files) < 5:
        raise LookupError(f"of {', '.join(_CANDIDATES)} in /dev only {len(files)} can be opened; five are needed")
    return [
        Kind("rw", {f"rw-{number}": files[number] for number in range(3)}),
        Kind("ro", {"ro-0": files[3]}, permissions="r"),
        Kind("cdi", {"cdi-0": files[4]}, cdi=True),
    ]


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own, for the length of the block; one for all plugins, as gRPC wants it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="given-plugins")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def call_in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    """Its result, from another thread than the loop's."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_CALL_SECONDS)


class Plugins:
    """The plugins of one node, served in `loop`; they register again whenever the directory's owner comes back.

    May be started again after its end. mounted, mounted_on_node: the folder of the files that they let containers mount, as seen
    from here and from the node.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        plugin_dir: Path,
        of: Sequence[Kind],
        mounted: Path,
        mounted_on_node: Path,
    ) -> None:
        self._loop = loop
        self._plugin_dir = plugin_dir
        self._serving: list[asyncio.Task[None]] = []
        self.by_resource: dict[str, FakePlugin] = {}
        mounted.mkdir(parents=True, exist_ok=True)
        for kind in of:
            plugin = FakePlugin(kind.resource, {device_id: FakeDevice() for device_id in kind.files})
            plugin.knobs.allocate_answer = kind.answer(mounted_on_node)
            self.by_resource[kind.resource] = plugin
            for device_id in kind.files:
                (mounted / device_id).write_text(f"{device_id}\n")

    def start(self) -> None:
        """Serve and register; from now on again whenever it has to be."""
        self._plugin_dir.mkdir(parents=True, exist_ok=True)
        call_in(self._loop, self._start())

    def stop(self) -> None:
        """End in order. Not started: nothing happens."""
        call_in(self._loop, self._stop())

    def set_health(self, resource: str, device_id: str, healthy: bool) -> None:
        call_in(self._loop, self.by_resource[resource].set_health(device_id, healthy))

    async def _start(self) -> None:
        plugins = self.by_resource.values()
        self._serving = [asyncio.create_task(run_until_stopped(plugin, self._plugin_dir)) for plugin in plugins]

    async def _stop(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._serving = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
