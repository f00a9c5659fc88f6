"""The process that reads the driver may hang, crash and be replaced; an unread GPU is never healthy."""

import asyncio
import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.plugins.nvml import watch
from nodedevice_agent.plugins.nvml.reader import process
from nodedevice_agent.plugins.nvml.reader.messages import Found, Message, ReaderOptions
from nodedevice_agent.plugins.nvml.reader.process import Succession
from nodedevice_common.decoding import decode

from hack.fake_nvml.library import FakeNvml, put_on_the_bus
from tests.integration.nvml.gpu_node import Node, node

# a driver whose Xids alone count
WITHOUT_ACTIONS = "set * recovery-action=-1"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_GRACE_SECONDS", 0.3)


async def test_a_hanging_call_affects_one_gpu(dgx: Node) -> None:
    dgx.gpus.write(WITHOUT_ACTIONS)
    dgx.gpus.hang(4, "nvmlDeviceGetTotalEccErrors")
    await dgx.until_unhealthy({4: "DriverHangs"})
    assert "nvmlDeviceGetTotalEccErrors" in dgx.device(4).message
    # the others are watched as before
    dgx.gpus.xid(6, 95)
    await dgx.until_unhealthy({4: "DriverHangs", 6: "Xid95"})
    dgx.gpus.repair(4, "nvmlDeviceGetTotalEccErrors")
    await dgx.until_unhealthy({6: "Xid95"})


async def test_a_driver_that_hangs_from_the_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_bus(tmp_path / "host")
    async with node(tmp_path, "t4-pair", monkeypatch, ["hang * nvmlDeviceGetCount"]) as here:
        found = await here.until(lambda r: bool(r.plugin_message))
        assert found.total == 0
        assert "nvmlDeviceGetCount hangs" in found.plugin_message
        here.gpus.repair("*", "nvmlDeviceGetCount")
        found = await here.until(lambda r: r.available == 2)
        assert not found.plugin_message


@pytest.mark.usefixtures("quick")
async def test_its_process_may_die_at_any_time(t4: Node) -> None:
    t4.gpus.xid(0, 48)
    await t4.until_unhealthy({0: "Xid48"})
    # no driver for the next one: GPUs that cannot be read are not allocated
    t4.gpus.write("init UNKNOWN")
    os.kill(t4.reader_pid(), signal.SIGKILL)
    await t4.until_unhealthy({0: "Xid48", 1: "DriverFailed"})
    t4.gpus.write("init SUCCESS")
    await t4.until_unhealthy({0: "Xid48"})


@pytest.mark.usefixtures("quick")
async def test_a_reader_that_keeps_failing_is_reported(t4: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(process, "_MODULE", "nodedevice_agent.no_such_module")
        os.kill(t4.reader_pid(), signal.SIGKILL)
        await t4.until_unhealthy({0: "ReaderFailed", 1: "ReaderFailed"})
    await t4.until(lambda r: r.available == 2)


async def test_polls_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch, records_calls=True, rescanSeconds=3600) as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.lose(1)
        await here.until_unhealthy({1: "GpuLost"})
        here.gpus.write(WITHOUT_ACTIONS)
        here.gpus.xid(3, 31, times=3000)
        here.gpus.xid(3, 79)
        await here.until_unhealthy({1: "GpuLost", 3: "Xid79"})
        here.gpus.lose(4)
        await here.until_unhealthy({1: "GpuLost", 3: "Xid79", 4: "GpuLost"})
        calls = here.gpus.recorded_calls()
        reads = [c.milliseconds for c in calls if c.function == "nvmlDeviceGetRemappedRows" and c.slot == 0]
        assert len(reads) >= 3
        assert min(later - earlier for earlier, later in pairwise(reads)) >= 900


async def test_no_xid_is_missed_during_a_rescan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = asyncio.Event()
    rescan = Succession.rescan

    def noted(readers: Succession) -> None:
        begins.set()
        rescan(readers)

    monkeypatch.setattr(Succession, "rescan", noted)
    async with node(tmp_path, "dgx-h100", monkeypatch, [WITHOUT_ACTIONS]) as here:
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


async def test_an_unidentified_gpu_does_not_block_the_others(dgx: Node) -> None:
    dgx.gpus.write(WITHOUT_ACTIONS)
    dgx.gpus.xid(4, 119)
    dgx.gpus.hang(4, "nvmlDeviceGetUUID")
    # the next reader, which rescans for this one, meets the GPU that hangs
    dgx.gpus.lose(0)
    found = await dgx.until(lambda r: bool(r.plugin_message))
    assert "GPU 4 does not respond" in found.plugin_message
    await dgx.until_unhealthy({0: "GpuLost", 4: "Xid119"})
    dgx.gpus.xid(2, 48)
    await dgx.until_unhealthy({0: "GpuLost", 2: "Xid48", 4: "Xid119"})
    dgx.gpus.repair(4, "nvmlDeviceGetUUID")
    dgx.gpus.add(0)
    await dgx.until_unhealthy({2: "Xid48", 4: "Xid119"})
    assert not (await dgx.until(lambda r: not r.plugin_message)).plugin_message


async def test_memory_of_its_process(dgx: Node) -> None:
    status = Path(f"/proc/{dgx.reader_pid()}/status").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    assert kib <= 40 * 1024
    loaded = Path(f"/proc/{dgx.reader_pid()}/maps").read_text()
    assert "libnvidia-ml.so.1" in loaded
    assert "grpc" not in loaded
    assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()


async def test_all_gpus_may_hang_when_they_are_identified(t4: Node) -> None:
    t4.gpus.hang("*", "nvmlDeviceGetUUID")
    os.kill(t4.reader_pid(), signal.SIGKILL)
    found = await t4.until(lambda r: "GPU 1 does not respond" in r.plugin_message)
    assert {d.reason for d in found.devices} == {"DriverHangs"}


@pytest.mark.parametrize("function", ["nvmlDeviceRegisterEvents", "nvmlDeviceGetNvLinkState"])
async def test_a_hung_first_call_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, [f"hang 1 {function}"]) as here:
        await here.until_unhealthy({1: "DriverHangs"})
        here.gpus.repair(1, function)
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 79)
        await here.until_unhealthy({1: "Xid79"})


async def test_the_reader_exits_with_its_parent(tmp_path: Path) -> None:
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
    assert isinstance(decode(await reader.stdout.readline(), Message), Found)
    reader.stdin.close()
    assert await asyncio.wait_for(reader.wait(), 60) == 0
