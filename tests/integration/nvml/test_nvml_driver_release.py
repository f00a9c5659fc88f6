"""The driver is closed on request while the agent runs, and is opened again, also as another version: real readers and pynvml."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.settings import PluginSettings

from hack.fake_nvml.library import FakeNvml
from tests.fakes.hosted_manager import hosted, pod
from tests.integration.nvml.gpu_node import GPU, QUICK, Node

SECONDS = 5.0


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    found = FakeNvml(tmp_path / "nvml", "t4-pair")
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    return found


@asynccontextmanager
async def agent(folder: Path, gpus: FakeNvml) -> AsyncIterator[Node]:
    """A node whose agent has the plugin in its own process; entered again, it has restarted. Its pod p has a GPU."""
    (folder / "host/dev").mkdir(parents=True, exist_ok=True)
    raw = {"hostRoot": str(folder / "host"), "nvml": {**QUICK, "rescanSeconds": 30}}
    async with hosted(folder, [pod("p", GPU, 1)]) as manager:
        manager.configure(msgspec.convert(raw, PluginSettings))
        yield Node(folder, gpus, manager)


def users() -> list[int]:
    """Child processes that have the library mapped, as the kernel shows it."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children if "libnvidia-ml" in Path(f"/proc/{child}/maps").read_text()]


async def until(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)


async def command(folder: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodedevice_agent", "gpu", *arguments, "--state-dir", str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def is_closed(here: Node, message: str) -> None:
    """No process has NVML open; the pod keeps its GPU, and nobody gets the free one."""
    await until(lambda: users() == [])
    await here.until(lambda r: {d.reason for d in r.devices} == {"DriverReleased"})
    assert all(message in device.message for device in (here.device(0), here.device(1)))
    assert here.manager.available(GPU) == 0
    assert here.manager.manager.book.of("p", "c0", GPU) is not None
    # nor is it opened by itself
    await asyncio.sleep(2 * QUICK["pollSeconds"])
    assert users() == []


async def is_open(here: Node) -> None:
    await until(lambda: len(users()) == 1, 30)
    await here.until(lambda r: all(device.healthy for device in r.devices) and r.available == 1)


def drivers(caplog: pytest.LogCaptureFixture) -> list[Any]:
    found = [record for record in caplog.records if record.message == "GPUs found"]
    return [record.__dict__["driver"] for record in found]


def upgrade(gpus: FakeNvml, version: str) -> None:
    text = gpus.description.read_text().replace("580.95.05", version)
    gpus.description.write_text(text)


async def test_by_command(tmp_path: Path, gpus: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with agent(tmp_path, gpus) as here:
        await is_open(here)
        for _ in range(2):
            status, output = await command(tmp_path, "release")
            assert (status, users()) == (0, []), output
            assert "gpu resume" in output
        await is_closed(here, "run: nodedevice-agent gpu resume")
        upgrade(gpus, "590.10")
        assert await command(tmp_path, "resume") == (0, "")
        await is_open(here)
        assert drivers(caplog) == ["580.95.05", "590.10"]
        assert "not released" in (await command(tmp_path, "resume"))[1]
