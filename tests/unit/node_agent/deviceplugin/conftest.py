"""Plugins and kubelets here answer over real sockets."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.deviceplugin import redial

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines

Start = Callable[..., Awaitable[FakePlugin]]


def remembered(folder: Path) -> dict[str, str]:
    """By socket, the resources of the plugins to which the next start of the agent connects."""
    checkpoint = checkpoint_file.read(folder)
    return {} if checkpoint is None else {socket.name: socket.resource_name for socket in checkpoint.sockets}


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path) as manager:
        yield manager


@pytest.fixture
async def start(manager: HostedManager) -> AsyncIterator[Start]:
    """Serve a plugin of the resource with these devices, by default one. It is not registered. options: of the plugin."""
    plugins = []

    async def start(resource_name: str, *device_ids: str, **options: Any) -> FakePlugin:
        plugin = FakePlugin(resource_name, dict.fromkeys(device_ids or ("d0",), FakeDevice()), **options)
        plugins.append(plugin)
        await plugin.start(manager.plugin_dir)
        return plugin

    yield start
    for plugin in plugins:
        await plugin.stop()


@pytest.fixture
def join(manager: HostedManager, start: Start) -> Start:
    """The same, and registers it. Returns once its devices can be allocated."""

    async def join(resource_name: str, *device_ids: str, **options: Any) -> FakePlugin:
        plugin = await start(resource_name, *device_ids, **options)
        await plugin.register()
        await manager.until(lambda: manager.available(resource_name) == len(plugin.devices))
        return plugin

    return join


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each pause before a plugin is dialled again. None of them lasts."""
    found: list[int] = []

    def noted(number: int, *bounds: float) -> float:
        found.append(number)
        return 0.0

    monkeypatch.setattr(redial, "exponential_seconds", noted)
    return found
