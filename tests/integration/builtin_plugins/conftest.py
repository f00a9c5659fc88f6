"""A minimal device manager: accepts registrations, dials back and keeps every list. No agent, no root."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.device_manager import Manager


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
