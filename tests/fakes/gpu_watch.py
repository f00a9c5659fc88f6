"""A node whose readers and files a test plays for the watch of its GPUs."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.values import Injector, NodeLabels
from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Ports
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.messages import Described, Found, Orders, Problem, ReaderOptions, Readings
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.watch import GpuWatch

from tests.fakes.loaded_nvml import VERSION, h100
from tests.fakes.sysfs import PCI, FakeSysfs
from tests.fakes.virtual_time import later

# begins a watch on a node with these scripts of its readers
Play = Callable[..., Any]
# the reader exits
END = None
# what readers of two GPUs report; test_reader.py compares each with a reader of the fake NVML library
ONE, TWO = h100("1"), h100("2", 1)
BOTH = Found(VERSION, [ONE, TWO], {"GPU-1": Ports(), "GPU-2": Ports()}, [("GPU-1", "GPU-2", Ancestor.SWITCH)])
WELL = Reading(ecc_uncorrected=0, recovery_action=0)
FINE = Readings({"GPU-1": WELL, "GPU-2": WELL})
LOST = Readings({"GPU-1": Reading(is_lost=True), "GPU-2": WELL})
# the driver reports no recovery action
OLD = Readings({"GPU-1": Reading(ecc_uncorrected=0), "GPU-2": Reading(ecc_uncorrected=0)})
DIVIDED = Described(
    [
        replace(
            ONE,
            instances=(MigInstance("MIG-1", "1g.10gb", 7, 0, 9984), MigInstance("MIG-2", "1g.10gb", 8, 0, 9984)),
        ),
        TWO,
    ]
)
ABSENT = Problem("NoGpu", "the NVIDIA driver lists no GPU", is_absent=True)
BROKEN = Problem("DriverFailed", "the NVIDIA driver cannot be read: Insufficient Memory")


class Node:
    """A node whose readers a test plays. scripts: what each reader does: messages, an error, seconds to wait, END."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.host, self.state = folder / "host", folder / "state"
        (self.host / "dev").mkdir(parents=True)
        self.settings = msgspec.convert({"handOver": ["env"], "rescanSeconds": 30.0, **settings}, NvmlSettings)
        self.scripts: list[list[Any]] = []
        self.readers: list[Readers] = []
        self.files: list[Subscription] = []
        self.started: list[float] = []
        self.labels = NodeLabels()
        self.watch: Any = None

    def make(self, injector: Injector | None = None) -> GpuWatch:
        watcher: Any = self
        make_readers: Any = partial(Readers, self)
        made = GpuWatch(self.settings, f"{self.host}/", self.state, watcher, injector, self.labels, make_readers)
        self.watch = made
        return made

    def subscribe(self) -> "Subscription":
        self.files.append(Subscription())
        return self.files[-1]

    def plug(self) -> None:
        """A GPU on the PCI bus."""
        FakeSysfs(self.host).pci(f"{PCI}/{ONE.pci_bus_id}", "10de", its_class="030200")

    def clear(self, uuid: str) -> None:
        folder = self.state / "gpus/clear"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / uuid).touch()

    @property
    def sources(self) -> dict[str, Any]:
        """By resource name."""
        found: dict[str, Any] = self.watch._sources
        return found

    @property
    def served(self) -> dict[str, dict[str, bool]]:
        """By resource name: each device, and whether it is healthy."""
        return {
            name: {device.id: device.is_healthy for device in source.devices.latest}
            for name, source in self.sources.items()
        }

    @property
    def unhealthy(self) -> set[str]:
        return {device for devices in self.served.values() for device, is_healthy in devices.items() if not is_healthy}

    @property
    def trouble(self) -> str:
        """The reason of the first resource."""
        reason: str = next(iter(self.sources.values())).devices.trouble[0]
        return reason

    @property
    def reader(self) -> "Readers":
        return self.readers[-1]


class Readers:
    """In place of a Succession."""

    def __init__(self, node: Node, options: ReaderOptions) -> None:
        self.options = options
        self.orders: list[Orders] = []
        self._ordered = Orders()
        self.rescans: list[float] = []
        self.may_rescan = True
        self.has_ended = True
        self.ends = 0
        self.gone = asyncio.Event()
        self._node = node
        self._script = node.scripts.pop(0) if node.scripts else []
        node.readers.append(self)

    async def messages(self) -> AsyncGenerator[Any, None]:
        self._node.started.append(asyncio.get_running_loop().time() - 1000.0)
        for each in self._script:
            if isinstance(each, int | float):
                await later(each)
            elif isinstance(each, Exception):
                raise each
            elif each is END:
                return
            else:
                yield each
        await asyncio.Event().wait()

    def order(self, orders: Orders) -> None:
        if orders != self._ordered:
            self.orders.append(orders)
        self._ordered = orders

    def rescan(self) -> None:
        self.rescans.append(asyncio.get_running_loop().time() - 1000.0)

    async def end(self) -> bool:
        self.ends += 1
        return self.has_ended

    async def ended(self) -> None:
        await self.gone.wait()


class Subscription:
    """In place of one of a FileWatcher."""

    def __init__(self) -> None:
        self.follows: list[tuple[tuple[Path, ...], bool]] = []
        self.patience: list[float] = []
        self.is_closed = False
        self._events: asyncio.Queue[set[Path]] = asyncio.Queue()

    def follow(self, directories: Iterable[Path], contents: bool = False) -> None:
        self.follows.append((tuple(directories), contents))

    async def wait(self, seconds: float) -> set[Path]:
        self.patience.append(seconds)
        return await self._events.get()

    def see(self, *paths: Path) -> None:
        self._events.put_nowait(set(paths))

    def wake(self) -> None:
        self.see()

    def close(self) -> None:
        self.is_closed = True
