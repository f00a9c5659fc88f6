"""The fake NVML library in the process of a test: the driver and the events of the nvml plugin call it through real pynvml.

A process has one such machine. Its GPUs are H100s, as tests/nvml compares them with a real one.
"""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.reader.driver import Driver
from nodedevice_agent.plugins.nvml.reader.events import EventWatch, GpuEvent

from hack.fake_nvml.library import MACHINES, NAME, FakeNvml, library
from tests.fakes.polling import PATIENCE_SECONDS

VERSION = "580.159.04"
BUS_IDS = ("0000:1b:00.0", "0000:2b:00.0", "0000:3b:00.0")
MEMORY_MIB, RESERVED_MIB = 81559, 480


def h100(name: str, place: int = 0) -> Gpu:
    """How the driver describes the GPU that is so named."""
    usable = MEMORY_MIB - RESERVED_MIB << 20
    return Gpu(f"GPU-{name}", "NVIDIA H100 80GB HBM3", usable, BUS_IDS[place], 0, place, index=place)


class LoadedNvml(FakeNvml):
    """The library is a copy under another name: the maps of this process do not show NVIDIA's name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "h100-one")
        self.library_dir = folder / "library"
        self.library_dir.mkdir()
        shutil.copy(library(), folder / "loaded.so")
        (self.library_dir / NAME).symlink_to(folder / "loaded.so")
        self._model = [line for line in self.description.read_text().splitlines() if not line.startswith("gpu ")]

    def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One GPU, and nothing has happened."""
        self._patch = monkeypatch
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        for name, value in self.environment(records_calls=True).items():
            monkeypatch.setenv(name, value)
        self.control.write_bytes(b"")
        self.calls.write_bytes(b"")
        self.describe("a")

    def describe(self, *names: str) -> None:
        """The GPUs of the next session."""
        gpus = [f"gpu h100 uuid=GPU-{name} pci={BUS_IDS[n]} numa=0 nvlinks=36" for n, name in enumerate(names)]
        self.description.write_text("\n".join([*self._model, *gpus, ""]))

    def describe_shipped(self, machine: str) -> None:
        """The next session is of this machine."""
        self.description.write_bytes((MACHINES / f"{machine}.machine").read_bytes())

    def driver(self, host_root: Path | str = "/nowhere") -> Driver:
        """A session."""
        opened = Driver(str(host_root), str(self.library_dir))
        opened.open()
        return opened

    def count(self, function: str, slot: int = 0) -> int:
        """How often it was called for this GPU."""
        return sum((call.function, call.slot) == (function, slot) for call in self.recorded_calls())

    def replace(self, function: str, played: Callable[..., Any]) -> None:
        """For a response that no machine returns, and to see each call."""
        played.__name__ = function
        self._patch.setattr(pynvml, function, played)

    def end_events(self) -> None:
        """The driver has no events any more: the threads that wait for them end."""
        self.break_function("*", "nvmlEventSetWait", "NOT_SUPPORTED")
        for thread in threading.enumerate():
            if thread.name == "nvml events":
                thread.join(PATIENCE_SECONDS)
                assert not thread.is_alive()

    def end(self) -> None:
        if pynvml.nvmlLib is not None:
            self.end_events()
            self.control.write_bytes(b"")
            # each session counts
            while pynvml.nvmlLib.nvmlShutdown() == pynvml.NVML_SUCCESS:
                pass


class CountedEvents(EventWatch):
    """A test waits for each event of the library."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived = threading.Semaphore(0)

    def _count(self, event: GpuEvent) -> None:
        super()._count(event)
        self._arrived.release()

    def await_events(self, count: int) -> None:
        """Return when so many more have come."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=PATIENCE_SECONDS)
