"""Client of the Registration service that a plugin serves on its socket in the plugins registry directory.

Source: kubelet pkg/kubelet/pluginmanager/operationexecutor, for the calls and their deadlines.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc

from nodedevice_agent.deviceplugin.connection import open_channel, rpc_error_text
from nodedevice_agent.errors import PluginFailed

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0

_MAX_MESSAGE_BYTES = 64 * 1024
_MAX_ERROR_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """kind: DevicePlugin, CSIPlugin, DRAPlugin. endpoint: path of the socket that serves it, empty for this one."""

    kind: str
    name: str
    endpoint: str
    supported_versions: tuple[str, ...]


class PluginRegistrationClient:
    """An open connection to one socket. Use open()."""

    def __init__(self, socket: Path, channel: grpc.aio.Channel) -> None:
        self._socket = socket
        # the asynchronous stub exists for the type checker alone
        self._plugin = cast("api_pb2_grpc.RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
        self._name = str(socket)

    @classmethod
    @asynccontextmanager
    async def open(cls, socket: Path) -> AsyncIterator[Self]:
        """Dial it. Raises PluginFailed."""
        channel = open_channel(socket, _MAX_MESSAGE_BYTES)
        try:
            try:
                await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
            except TimeoutError as exc:
                raise PluginFailed(str(socket), "Dialling", f"no response within {DIAL_SECONDS:.0f} s") from exc
            yield cls(socket, channel)
        finally:
            await channel.close()

    async def info(self) -> PluginInfo:
        """The plugin's GetInfo response. Raises PluginFailed."""
        try:
            info = await self._plugin.GetInfo(api_pb2.InfoRequest(), timeout=INFO_SECONDS)
        except grpc.RpcError as exc:
            raise PluginFailed(self._name, "GetInfo", rpc_error_text(exc)) from exc
        if info is None:
            # for a message that it cannot parse, grpc returns None instead of an error
            raise PluginFailed(self._name, "GetInfo", "the response is not a message of the plugin registration API")
        self._name = info.name or self._name
        return PluginInfo(info.type, info.name, info.endpoint, tuple(info.supported_versions))

    async def notify(self, problem: str) -> None:
        """Report the result of the registration, empty for success. An error of this call changes nothing."""
        status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
        try:
            await self._plugin.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        except grpc.RpcError as exc:
            extra = {"socket": str(self._socket), "error": rpc_error_text(exc)[:_MAX_ERROR_CHARACTERS]}
            log.warning("cannot notify the plugin of its registration status", extra=extra)
