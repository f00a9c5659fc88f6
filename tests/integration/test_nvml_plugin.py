"""The nvml plugin as a whole: real pynvml in its own process on a library of ours, our device manager behind the socket."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.core.snapshot import DeviceView, Snapshot, snapshot
from nodedevice_agent.plugins.core.resource_names import socket_name
from nodedevice_agent.plugins.nvml import process, watch
from nodedevice_agent.plugins.nvml.messages import Found, ReaderOptions, decode
from nodedevice_agent.plugins.nvml.succession import Succession
from nodedevice_agent.plugins.run import run_plugins
from nodedevice_agent.plugins.settings import plugin_settings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.fake_nvml import FakeNvml
from tests.fakes.hosted_manager import HostedManager, hosted

GPU = "nvidia.com/gpu"
QUICK = {"pollSeconds": 1, "callSeconds": 0.5, "rescanSeconds": 1}


class Node:
    """A node with this machine's GPUs, its plugin and its device manager."""

    def __init__(self, folder: Path, gpus: FakeNvml, manager: HostedManager) -> None:
        self.folder, self.gpus, self.manager = folder, gpus, manager

    def resource(self, name: str = GPU) -> Snapshot | None:
        known = self.manager.manager.resources
        return snapshot(self.manager.manager, name) if name in known and known[name].is_live else None

    def device(self, place: int) -> DeviceView:
        """By its place on the PCI bus, when it was first listed."""
        resource = self.resource()
        assert resource is not None
        return next(device for device in resource.devices if device.id == self.uuids[place])

    @property
    def uuids(self) -> list[str]:
        lines = self.gpus.description.read_text().splitlines()
        words = [word for line in lines if line.startswith("gpu ") for word in line.split()]
        return [word.removeprefix("uuid=") for word in words if word.startswith("uuid=")]

    async def until(self, holds: Callable[[Snapshot], bool], name: str = GPU) -> Snapshot:
        def is_so() -> bool:
            found = self.resource(name)
            return found is not None and holds(found)

        await self.manager.until(is_so)
        found = self.resource(name)
        assert found is not None
        return found

    async def until_unhealthy(self, reasons: dict[int, str]) -> None:
        """Exactly these GPUs, by place, with these reasons."""
        wanted = {self.uuids[place]: reason for place, reason in reasons.items()}
        await self.until(lambda r: {d.id: d.reason for d in r.devices if not d.healthy} == wanted)

    def reader_pids(self) -> list[int]:
        """The plugin's own processes: one, and another that takes over from it while GPUs are looked for."""
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return [int(c) for c in children if b"nvml.reader" in Path(f"/proc/{c}/cmdline").read_bytes()]

    def reader_pid(self) -> int:
        (pid,) = self.reader_pids()
        return pid


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_GRACE_SECONDS", 0.3)


@pytest.fixture(autouse=True)
def host_without_gpus(tmp_path: Path) -> Path:
    (tmp_path / "host/dev").mkdir(parents=True)
    return tmp_path / "host"


@asynccontextmanager
async def node(
    folder: Path, machine: str, monkeypatch: pytest.MonkeyPatch, records_calls: bool = False, **settings: Any
) -> AsyncIterator[Node]:
    gpus = FakeNvml(folder / "nvml", machine)
    for name, value in gpus.environment(records_calls=records_calls).items():
        monkeypatch.setenv(name, value)
    async with hosted(folder) as manager, plugins(folder, **settings):
        yield Node(folder, gpus, manager)


@asynccontextmanager
async def plugins(folder: Path, **settings: Any) -> AsyncIterator[None]:
    raw = {"hostRoot": str(folder / "host"), "nvml": {**QUICK, **settings}}
    task = asyncio.create_task(run_plugins(plugin_settings(raw), folder / "plugins", folder / "state"))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_lists_gpus_with_what_is_known_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        found = await here.until(lambda r: r.healthy == 8)
        assert [d.id for d in found.devices] == sorted(here.uuids)
        first = here.device(0)
        assert dict(first.attributes) == {
            "model": "NVIDIA H100 80GB HBM3",
            "memoryBytes": "85520809984",
            "pciBusID": "0000:1b:00.0",
        }
        assert {d.numa_nodes for d in found.devices} == {(0,), (1,)}
        assert found.options.get_preferred_allocation_available


async def test_a_critical_xid_takes_a_gpu_out_until_it_was_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.xid(3, 79)
        await here.until_unhealthy({3: "Xid79"})
        assert "fallen off the bus" in here.device(3).message
        assert here.manager.available(GPU) == 7
        here.gpus.reset(3)
        await here.until(lambda r: r.available == 8)


async def test_an_application_xid_takes_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, harmlessXids=[74]) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(0, 31, times=10)
        here.gpus.xid(0, 74)
        # told in order: what came before is taken in when this one is
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})


async def test_an_administrator_can_say_that_a_gpu_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
        clear = tmp_path / "state/gpus/clear"
        clear.mkdir()
        (clear / here.uuids[1]).touch()
        await here.until(lambda r: r.available == 2)
        assert not list(clear.iterdir())


async def test_a_mark_outlives_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until_unhealthy({1: "Xid48"})
    # reset while nobody was looking, as nvidia-smi wants it
    here.gpus.reset(1)
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until(lambda r: r.available == 2)


async def test_lost_and_removed_gpus_count_again_when_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.lose(2)
        await here.until_unhealthy({2: "GpuLost"})
        here.gpus.remove(5)
        await here.until_unhealthy({2: "GpuLost", 5: "GpuGone"})
        here.gpus.add(2)
        here.gpus.add(5)
        await here.until(lambda r: r.available == 8)


async def test_ecc_errors_and_what_the_driver_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.set(0, uncorrected_volatile=1)
        here.gpus.set(1, recovery_action=1)
        await here.until_unhealthy({0: "EccUncorrectable", 1: "ResetRequired"})
        here.gpus.reset(0)
        here.gpus.reset(1)
        await here.until(lambda r: r.available == 8)


async def test_a_call_that_hangs_costs_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.hang(4, "nvmlDeviceGetTotalEccErrors")
        await here.until_unhealthy({4: "DriverHangs"})
        assert "nvmlDeviceGetTotalEccErrors" in here.device(4).message
        # the others are watched as before
        here.gpus.xid(6, 95)
        await here.until_unhealthy({4: "DriverHangs", 6: "Xid95"})
        here.gpus.repair(4, "nvmlDeviceGetTotalEccErrors")
        await here.until_unhealthy({6: "Xid95"})


async def test_a_driver_that_hangs_from_the_start_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_without_gpus: Path
) -> None:
    pci(host_without_gpus)
    gpus = FakeNvml(tmp_path / "nvml", "t4-pair")
    gpus.hang("*", "nvmlDeviceGetCount")
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        here = Node(tmp_path, gpus, manager)
        found = await here.until(lambda r: bool(r.trouble))
        assert found.total == 0
        assert "nvmlDeviceGetCount does not come back" in found.trouble
        gpus.repair("*", "nvmlDeviceGetCount")
        found = await here.until(lambda r: r.available == 2)
        assert not found.trouble


async def test_a_new_uuid_after_a_reset_is_a_new_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
        here.gpus.reset(1, uuid="GPU-00000000-1111-2222-3333-444444444444")
        found = await here.until(lambda r: r.available == 2)
        assert [d.id for d in found.devices] == sorted([here.uuids[0], "GPU-00000000-1111-2222-3333-444444444444"])


@pytest.mark.usefixtures("quick")
async def test_its_process_may_die_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(0, 48)
        await here.until_unhealthy({0: "Xid48"})
        # no driver for the next one: the GPUs that nobody can look at are not given out
        here.gpus.write("init UNKNOWN")
        os.kill(here.reader_pid(), signal.SIGKILL)
        await here.until_unhealthy({0: "Xid48", 1: "DriverFailed"})
        here.gpus.write("init SUCCESS")
        await here.until_unhealthy({0: "Xid48"})


@pytest.mark.usefixtures("quick")
async def test_a_process_that_keeps_failing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        with monkeypatch.context() as broken:
            broken.setattr(process, "_MODULE", "nodedevice_agent.no_such_module")
            os.kill(here.reader_pid(), signal.SIGKILL)
            await here.until_unhealthy({0: "ReaderFailed", 1: "ReaderFailed"})
        await here.until(lambda r: r.available == 2)


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"]
)
async def test_a_driver_without_events_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    gpus = FakeNvml(tmp_path / "nvml", "t4-pair")
    gpus.break_function("*", function, "NOT_SUPPORTED")
    gpus.break_function(0, "nvmlDeviceGetMemoryInfo", "NOT_SUPPORTED")
    gpus.break_function(0, "nvmlDeviceGetTotalEnergyConsumption", "UNKNOWN")
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        here = Node(tmp_path, gpus, manager)
        await here.until(lambda r: r.available == 2)
        assert "memoryBytes" not in dict(here.device(0).attributes)
        assert "memoryBytes" in dict(here.device(1).attributes)
        gpus.set(0, uncorrected_volatile=2)
        await here.until_unhealthy({0: "EccUncorrectable"})


async def test_a_storm_of_xids_is_one_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        before = len(here.manager.published)
        for _ in range(10):
            here.gpus.xid(3, 31, times=500)
            here.gpus.xid(3, 79, times=500)
        here.gpus.xid(7, 48)
        await here.until_unhealthy({3: "Xid79", 7: "Xid48"})
        assert len(here.manager.published) - before <= 2


async def test_looks_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch, records_calls=True, rescanSeconds=3600) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.lose(1)
        await here.until_unhealthy({1: "GpuLost"})
        here.gpus.xid(3, 31, times=3000)
        here.gpus.xid(3, 79)
        await here.until_unhealthy({1: "GpuLost", 3: "Xid79"})
        here.gpus.lose(4)
        await here.until_unhealthy({1: "GpuLost", 3: "Xid79", 4: "GpuLost"})
        calls = here.gpus.recorded_calls()
        looks = [c.milliseconds for c in calls if c.function == "nvmlDeviceGetTotalEnergyConsumption" and c.slot == 0]
        assert len(looks) >= 3
        assert min(later - earlier for earlier, later in pairwise(looks)) >= 900


async def test_no_xid_is_missed_while_a_lost_gpu_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = asyncio.Event()
    look_anew = Succession.look_anew

    def noted(readers: Succession) -> None:
        begins.set()
        look_anew(readers)

    monkeypatch.setattr(Succession, "look_anew", noted)
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.lose(0)
        expected = {0: "GpuLost"}
        await here.until_unhealthy(expected)
        for place in range(1, 4):
            begins.clear()
            await begins.wait()
            here.gpus.xid(place, 79)
            expected[place] = "Xid79"
            await here.until_unhealthy(expected)


async def test_a_gpu_that_does_not_tell_its_name_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.xid(4, 119)
        here.gpus.hang(4, "nvmlDeviceGetUUID")
        # the next reader, which looks for this one, meets the one that hangs
        here.gpus.lose(0)
        found = await here.until(lambda r: bool(r.trouble))
        assert "GPU 4 does not answer" in found.trouble
        await here.until_unhealthy({0: "GpuLost", 4: "Xid119"})
        here.gpus.xid(2, 48)
        await here.until_unhealthy({0: "GpuLost", 2: "Xid48", 4: "Xid119"})
        here.gpus.repair(4, "nvmlDeviceGetUUID")
        here.gpus.add(0)
        await here.until_unhealthy({2: "Xid48", 4: "Xid119"})
        assert not (await here.until(lambda r: not r.trouble)).trouble


async def test_sixteen_gpus_of_two_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "mixed-16", monkeypatch) as here:
        found = await here.until(lambda r: r.available == 16)
        models = {dict(d.attributes)["model"] for d in found.devices}
        assert len(models) == 2
    by_model = {sorted(models)[0]: "nvidia.com/other"}
    async with hosted(tmp_path / "again") as manager:
        raw = {"hostRoot": str(tmp_path / "host"), "nvml": {**QUICK, "modelResourceNames": by_model}}
        task = asyncio.create_task(run_plugins(plugin_settings(raw), tmp_path / "again/plugins", tmp_path / "again/s"))
        await manager.until(lambda: manager.available(GPU) + manager.available("nvidia.com/other") == 16)
        assert manager.available("nvidia.com/other") > 0
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def pci(host: Path) -> None:
    """A machine with an NVIDIA GPU on its bus."""
    device = host / "sys/bus/pci/devices/0000:1b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")


async def test_a_driver_that_does_not_fit_is_said_in_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_without_gpus: Path
) -> None:
    pci(host_without_gpus)
    async with node(tmp_path, "mismatch", monkeypatch) as here:
        found = await here.until(lambda r: bool(r.trouble))
        assert found.total == 0
        assert "different versions" in found.trouble


@pytest.mark.parametrize("machine", ["none", "no-driver"])
async def test_idle_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, machine: str
) -> None:
    caplog.set_level("INFO")
    said = asyncio.Event()
    monkeypatch.setattr(watch.log, "info", lambda event, **_: said.set() if "idle" in event else None)
    async with node(tmp_path, machine, monkeypatch) as here:
        await asyncio.wait_for(said.wait(), 30)
        assert not here.manager.manager.resources


async def test_what_a_container_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_without_gpus: Path) -> None:
    (host_without_gpus / "dev/nvidiactl").touch()
    (host_without_gpus / "dev/nvidia-uvm").touch()
    async with node(tmp_path, "t4-pair", monkeypatch, handOver=["env", "deviceNodes", "cdi"]) as here:
        await here.until(lambda r: r.available == 2)
        connection = here.manager.host.newest(GPU, "Allocate")
        answer = api_pb2.ContainerAllocateResponse.FromString(await connection.allocate((here.uuids[1],)))
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": here.uuids[1]}
        assert [d.host_path for d in answer.devices] == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
        assert [c.name for c in answer.cdi_devices] == [f"nvidia.com/gpu={here.uuids[1]}"]
        assert (tmp_path / "plugins" / socket_name(GPU)).is_socket()


async def test_prefers_gpus_that_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx1-v100", monkeypatch) as here:
        found = await here.until(lambda r: r.available == 8)
        ids = tuple(d.id for d in found.devices)
        connection = here.manager.host.newest(GPU, "GetPreferredAllocation")
        # on a DGX-1 the first GPU has two links to the fourth and the fifth, one to the second and the third
        (other,) = set(await connection.preferred(ids, (here.uuids[0],), 2)) - {here.uuids[0]}
        assert here.uuids.index(other) in {3, 4}


async def test_memory_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        status = Path(f"/proc/{here.reader_pid()}/status").read_text().splitlines()
        (kib,) = (int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        assert kib <= 40 * 1024
        loaded = Path(f"/proc/{here.reader_pid()}/maps").read_text()
        assert "libnvidia-ml.so.1" in loaded
        assert "grpc" not in loaded
        assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()


async def test_its_process_ends_with_who_started_it(tmp_path: Path) -> None:
    gpus = FakeNvml(tmp_path / "nvml", "t4-pair")
    options = ReaderOptions(poll_seconds=1, call_seconds=1, host_root=str(tmp_path))
    reader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodedevice_agent.plugins.nvml.reader", msgspec.json.encode(options).decode()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=gpus.environment(),
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert isinstance(decode(await reader.stdout.readline()), Found)
    reader.stdin.close()
    assert await asyncio.wait_for(reader.wait(), 30) == 0
