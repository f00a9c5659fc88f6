"""A plugin that registers again whenever any of its streams ends, and never checks its socket, as plugins in Rust do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/fake"


class _Touchy(FakePlugin):
    """ended: one entry for each stream that has ended."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ended: asyncio.Queue[None] = asyncio.Queue()

    async def lists(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        try:
            async for listed in super().lists():
                yield listed
        finally:
            self.ended.put_nowait(None)

    async def register_at_every_end(self) -> None:
        while True:
            await self.ended.get()
            await self.register()


async def _available(manager: HostedManager, count: int) -> None:
    await manager.until(lambda: manager.available(RESOURCE) == count)


def _devices(count: int) -> dict[str, FakeDevice]:
    return {f"device-{number}": FakeDevice() for number in range(count)}


async def test_it_is_served_through_restarts_without_endless_registrations(tmp_path: Path) -> None:
    plugin = _Touchy(RESOURCE, _devices(2))
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
    for restart in range(1, 4):
        asked = len(plugin.calls_of("GetDevicePluginOptions"))
        await plugin.wait_for_streams(0)
        async with hosted(tmp_path) as manager:
            living = asyncio.create_task(plugin.register_at_every_end())
            # dialled on its own, it registers because the stream of before has ended, and once more when one is replaced
            await plugin.wait_for_calls("GetDevicePluginOptions", asked + 3)
            for count in (*range(3, 20), 2):
                await plugin.update(_devices(count))
                await _available(manager, count)
            assert not plugin.socket_path.exists(), f"after restart {restart} it is reached under its second name alone"
            assert len(plugin.calls_of("GetDevicePluginOptions")) < asked + 10
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
    await plugin.stop()
