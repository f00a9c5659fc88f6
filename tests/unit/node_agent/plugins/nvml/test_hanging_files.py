"""A file of the host about GPUs hangs its reader: the list stays as it was, and GPUs are handed over, after one deadline."""

import asyncio
import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.lib import patient_reads
from nodedevice_agent.plugins.nvml.container_directories import ContainerDirectories
from nodedevice_agent.plugins.nvml.watch import has_gpu

from tests.fakes.polling import PATIENCE_SECONDS, until
from tests.unit.node_agent.plugins.generic.test_faulty_device import short_patience as short_patience
from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, Served, place
from tests.unit.node_agent.plugins.nvml.test_cdi_choice import INSTANCES, KIND, LIBRARY, SPEC, A, B, of, served, specify
from tests.unit.node_agent.plugins.nvml.test_cdi_choice import host as host

UID = "00000000-0000-4000-8000-000000000000"


pytestmark = pytest.mark.usefixtures("short_patience")


@contextmanager
def hanging(call: str, path: Path) -> Iterator[list[str]]:
    """That call about the path; the calls that hung."""
    ends, hung = threading.Event(), list[str]()
    module: Any = {"open": builtins, "io": io}.get(call, os)
    name = {"io": "open", "os.open": "open"}.get(call, call)
    real: Callable[..., Any] = getattr(module, name)

    def slow(asked: Any, *args: Any, **options: Any) -> Any:
        if str(asked) == str(path):
            hung.append(str(asked))
            assert ends.wait(60)
        return real(asked, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, slow)
        try:
            yield hung
        finally:
            ends.set()


async def serve(node: Served) -> None:
    """As the watch and Allocate do."""
    node.publish()
    await node.source.read_files()
    node.source.allocate(["GPU-b"], SOMEBODY)


HOST_FILES = [
    ("stat", "/dev/nvidia0"),
    ("stat", "/dev/nvidiactl"),
    ("listdir", f"/sys/bus/pci/devices/{A.pci_bus_id}/drm"),
    ("io", f"/sys/bus/pci/devices/{A.pci_bus_id}/drm/card0/dev"),
    ("io", "/proc/driver/nvidia-caps/mig-minors"),
]
OF_SPECIFICATIONS = [("lstat", "/dev/nvidia0"), ("stat", LIBRARY), ("os.open", SPEC), ("scandir", "/etc/cdi")]


@pytest.mark.parametrize(("call", "path"), HOST_FILES)
async def test_a_file_that_hangs_is_as_it_was(host: Path, call: str, path: str) -> None:
    gpus = [replace(A, instances=INSTANCES)] if "caps" in path else [A, B]
    node = await served(host, *gpus, handOver=["deviceNodes"])
    made = node.source
    before = made.devices.latest, made.devices.trouble
    with hanging(call, host / path[1:]) as hung:
        for _ in range(2):
            node.publish()
            assert (made.devices.latest, made.devices.trouble) == before
            assert made.allocate([made.devices.latest[-1].id], SOMEBODY).device_nodes
    assert len(hung) == 1


@pytest.mark.parametrize("lacks", ["threads", "patience"])
async def test_where_no_thread_can_wait(host: Path, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None can be started, or too many wait for files of other devices."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    node = await served(host, A, B)
    made = node.source
    before = made.devices.latest
    with monkeypatch.context() as patch:
        if lacks == "threads":
            patch.setattr(threading.Thread, "start", refuse)
        else:
            patch.setattr(patient_reads, "MAX_HANGING", 0)
        node.publish()
        assert made.devices.latest == before
        assert made.allocate(["GPU-b"], SOMEBODY).env


@pytest.mark.parametrize(("call", "path"), OF_SPECIFICATIONS)
async def test_a_specification_that_hangs_keeps_no_gpu_back(host: Path, call: str, path: str) -> None:
    specify(host, of("GPU-a", "/dev/nvidia0"))
    node = await served(host, A, B)
    made = node.source
    with hanging(call, host / path[1:]) as hung:
        # another file in the directory is a change
        specify(host, of("GPU-b", "/dev/nvidia1"), file="/etc/cdi/other.yaml")
        for _ in range(2):
            await serve(node)
        assert len(hung) == 1
    # the call that hung ends in its own thread, some time after
    async with asyncio.timeout(PATIENCE_SECONDS):
        while made.allocate(["GPU-b"], SOMEBODY).cdi_devices != (f"{KIND}=GPU-b",):
            await asyncio.sleep(0)
            await serve(node)


async def test_a_gpu_of_the_pci_bus(host: Path) -> None:
    for device, vendor in ((A.pci_bus_id, "0x8086"), (B.pci_bus_id, "0x10de")):
        place(host, f"/sys/bus/pci/devices/{device}/vendor").write_text(vendor)
        place(host, f"/sys/bus/pci/devices/{device}/class").write_text("0x030200")
    with hanging("io", host / f"sys/bus/pci/devices/{A.pci_bus_id}/vendor") as hung:
        assert has_gpu(str(host))
        assert has_gpu(str(host))
    assert len(hung) == 1


async def test_a_directory_of_containers(tmp_path: Path) -> None:
    directories = ContainerDirectories(tmp_path / "records", str(tmp_path))
    made = Path(f"{tmp_path}{directories.make('/lib', UID, 'main')}")
    with hanging("rename", made) as hung, pytest.raises(OSError, match="does not respond"):
        await directories.keep(())
    assert len(hung) == 1
    await until(lambda: not made.exists())
    await directories.keep(())
    assert not list(tmp_path.glob("lib/*"))
