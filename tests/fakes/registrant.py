"""A plugin that announces itself by a socket in the plugins registry directory, for tests of the plugin watcher.

One server with both services, as such plugins have them: Registration for the watcher, DevicePlugin (a FakePlugin's) for
the device manager. What it announces may be any nonsense.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2_grpc as device_pb2_grpc
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc

from tests.fakes.plugin import FakePlugin, service_of

Context = grpc.aio.ServicerContext[Any, Any]


class Registrant(api_pb2_grpc.RegistrationServicer):
    """Serves on the path it is given. `asked` counts GetInfo; `statuses` has every registration status, empty for well."""

    def __init__(
        self,
        path: Path,
        plugin: FakePlugin,
        *,
        kind: str = "DevicePlugin",
        name: str | None = None,
        endpoint: str = "",
        versions: Sequence[str] = ("v1beta1",),
    ) -> None:
        self.path = path
        self.plugin = plugin
        self.info = api_pb2.PluginInfo(
            type=kind,
            name=plugin.resource_name if name is None else name,
            endpoint=endpoint,
            supported_versions=versions,
        )
        self.asked = 0
        self.statuses: list[str] = []
        self.info_errors = 0
        self.info_gate: asyncio.Event | None = None
        self.at_once = 0
        self.most_at_once = 0
        self._server: grpc.aio.Server | None = None
        self._happened = asyncio.Condition()

    async def start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        device_pb2_grpc.add_DevicePluginServicer_to_server(service_of(self.plugin), self._server)
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving; the socket goes."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        self.path.unlink(missing_ok=True)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this holds; checked after each call."""
        async with asyncio.timeout(60), self._happened:
            await self._happened.wait_for(holds)

    async def until_accepted(self) -> None:
        """Wait until its only registration has succeeded."""
        await self.until(lambda: self.statuses == [""])

    async def GetInfo(self, request: api_pb2.InfoRequest, context: Context) -> api_pb2.PluginInfo:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self._note(asked=1)
            if self.info_gate is not None:
                await self.info_gate.wait()
            if self.info_errors:
                self.info_errors -= 1
                await context.abort(grpc.StatusCode.INTERNAL, "made to fail")
        finally:
            self.at_once -= 1
        return self.info

    async def NotifyRegistrationStatus(
        self, request: api_pb2.RegistrationStatus, context: Context
    ) -> api_pb2.RegistrationStatusResponse:
        assert request.plugin_registered == (not request.error)
        self.statuses.append(request.error)
        await self._note()
        return api_pb2.RegistrationStatusResponse()

    async def _note(self, asked: int = 0) -> None:
        async with self._happened:
            self.asked += asked
            self._happened.notify_all()
