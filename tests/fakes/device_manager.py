"""The smallest device manager there can be, for tests of plugins: takes registrations, dials back, keeps every list.

It allocates nothing and decides nothing; what it does is what the kubelet does first with each plugin.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0

Health = dict[str, str]


class Manager(api_pb2_grpc.RegistrationServicer):
    """Takes registrations and follows each plugin's lists; `lists` has all that ever came, by resource."""

    def __init__(self, plugin_dir: Path) -> None:
        self._dir = plugin_dir
        self._server: grpc.aio.Server | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._followers: list[asyncio.Task[None]] = []
        self._endpoints: dict[str, str] = {}
        self._happened = asyncio.Condition()
        self.registrations: list[api_pb2.RegisterRequest] = []
        self.lists: dict[str, list[list[api_pb2.Device]]] = {}
        self.options: dict[str, api_pb2.DevicePluginOptions] = {}
        self.refuse = ""

    async def start(self, socket_name: str = "kubelet.sock") -> None:
        """Serve; files in the directory stay, see wipe. Another name is for who moves it into place."""
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._dir / socket_name}")
        await self._server.start()

    def wipe(self) -> None:
        """Remove every socket in the directory, as a device manager does when it starts."""
        for path in self._dir.iterdir():
            if path.is_socket():
                path.unlink()

    async def stop(self) -> None:
        """Stop serving and listening; kubelet.sock goes."""
        if self._server is not None:
            await self._server.stop(None)
        await self.hang_up()

    async def until_hung_up(self) -> None:
        """Wait until every plugin has ended its list."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*self._followers)

    async def hang_up(self) -> None:
        """Stop listening to every plugin, but live on."""
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        self._followers, self._channels = [], []

    async def Register(self, request: api_pb2.RegisterRequest, context: Any) -> api_pb2.Empty:
        if self.refuse:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuse)
        # the plugin must serve before it registers: dialled here, as the kubelet does
        self._endpoints[request.resource_name] = request.endpoint
        plugin = self.dial(request.resource_name)
        self.options[request.resource_name] = await plugin.GetDevicePluginOptions(api_pb2.Empty())
        self._followers.append(asyncio.create_task(self._follow(request.resource_name, plugin)))
        async with self._happened:
            self.registrations.append(request)
            self._happened.notify_all()
        return api_pb2.Empty()

    def dial(self, resource_name: str) -> Any:
        """A stub that talks to the plugin of this resource; closed with the manager."""
        channel = grpc.aio.insecure_channel(f"unix:{self._dir / self._endpoints[resource_name]}", options=OPTIONS)
        self._channels.append(channel)
        return api_pb2_grpc.DevicePluginStub(channel)

    async def _follow(self, resource_name: str, plugin: Any) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in plugin.ListAndWatch(api_pb2.Empty()):
                async with self._happened:
                    self.lists.setdefault(resource_name, []).append(list(response.devices))
                    self._happened.notify_all()

    def latest(self, resource_name: str) -> Health | None:
        """Health by device ID of the latest list; None before the first."""
        lists = self.lists.get(resource_name)
        return {device.ID: device.health for device in lists[-1]} if lists else None

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; checked after each registration and each list."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._happened:
            await self._happened.wait_for(holds)

    async def until_listed(self, resource_name: str, expected: Health | list[str]) -> None:
        """Wait until the latest list is exactly this; IDs alone mean that all are healthy."""
        wanted = expected if isinstance(expected, dict) else dict.fromkeys(expected, "Healthy")
        try:
            await self.until(lambda: self.latest(resource_name) == wanted)
        except TimeoutError:
            pytest.fail(f"{resource_name}: expected {wanted}, the latest list is {self.latest(resource_name)}")
