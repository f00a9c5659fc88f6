"""The process that reads the driver may hang, crash and be replaced; an unread GPU is never healthy."""

import os
import signal
from pathlib import Path

import pytest
from nodedevice_agent.plugins.nvml import watch

from hack.fake_nvml.library import put_on_the_bus
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


async def test_memory_of_its_process(dgx: Node) -> None:
    status = Path(f"/proc/{dgx.reader_pid()}/status").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    assert kib <= 40 * 1024
    loaded = Path(f"/proc/{dgx.reader_pid()}/maps").read_text()
    assert "libnvidia-ml.so.1" in loaded
    assert "grpc" not in loaded
    assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()
