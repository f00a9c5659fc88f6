"""A minimal device manager: accepts registrations, dials back and keeps every list. No agent, no root."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.device_manager import Manager
from tests.integration.builtin_plugins.plugins import GPU, gpus, running
from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines


@pytest.fixture
def plugin_dir(tmp_path: Path) -> Path:
    path = tmp_path / "p"
    path.mkdir()
    return path


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A fake host tree: devices are regular files, which need no root."""
    (tmp_path / "host/dev").mkdir(parents=True)
    return tmp_path / "host"


@pytest.fixture
async def manager(plugin_dir: Path) -> AsyncIterator[Manager]:
    manager = Manager(plugin_dir)
    await manager.start()
    yield manager
    await manager.stop()


@pytest.fixture
async def served(manager: Manager, plugin_dir: Path, tmp_path: Path) -> AsyncIterator[Manager]:
    """The device manager of two simulated GPUs, listed."""
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        yield manager
