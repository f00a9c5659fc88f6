"""Plugins and kubelets here answer over real sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.deadlines import long_deadlines as long_deadlines

Start = Callable[[str], Awaitable[FakePlugin]]


@pytest.fixture(autouse=True)
def deadlines(long_deadlines: None) -> None:
    """None of them decides a test, but where the other side never answers."""


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path) as manager:
        yield manager


@pytest.fixture
async def start(manager: HostedManager) -> AsyncIterator[Start]:
    """Serves a plugin with one device, of that name, without registering it."""
    plugins = []

    async def start(resource_name: str) -> FakePlugin:
        plugin = FakePlugin(resource_name, {"d0": FakeDevice()})
        plugins.append(plugin)
        await plugin.start(manager.plugin_dir)
        return plugin

    yield start
    for plugin in plugins:
        await plugin.stop()
