"""The Registration service that a plugin serves on its socket in the plugins registry directory, as its caller.

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

from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.unix_sockets import grpc_target

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0

_CHANNEL_OPTIONS = [
    # Go, Rust and C# servers refuse the escaped socket path that grpc would send as :authority
    ("grpc.default_authority", "localhost"),
    # else a new channel to a path that was served before may still talk to the old server
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """kind: DevicePlugin, CSIPlugin, DRAPlugin. endpoint: path of the socket that serves it, empty for the announcing one."""

    kind: str
    name: str
    endpoint: str
    supported_versions: tuple[str, ...]


class Announcement:
    """An open connection to one announcing socket. Use open()."""

    def __init__(self, socket: Path, channel: grpc.aio.Channel) -> None:
        self._socket = socket
        # the asynchronous stub exists for the type checker alone
        self._plugin = cast("api_pb2_grpc.RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
        self._name = str(socket)

    @classmethod
    @asynccontextmanager
    async def open(cls, socket: Path) -> AsyncIterator[Self]:
        """Dial it. Raises PluginFailed."""
        channel = grpc.aio.insecure_channel(grpc_target(socket), options=_CHANNEL_OPTIONS)
        try:
            try:
                await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
            except TimeoutError as exc:
                raise PluginFailed(str(socket), "Dialling", f"no answer in {DIAL_SECONDS:.0f} s") from exc
            yield cls(socket, channel)
        finally:
            await channel.close()

    async def info(self) -> PluginInfo:
        """What it says it is. Raises PluginFailed."""
        try:
            info = await self._plugin.GetInfo(api_pb2.InfoRequest(), timeout=INFO_SECONDS)
        except grpc.RpcError as exc:
            raise PluginFailed(self._name, "GetInfo", _detail(exc)) from exc
        if info is None:
            # grpc hands over None, and no error, for a message that it cannot parse
            raise PluginFailed(self._name, "GetInfo", "the answer is no message of the plugin registration API")
        self._name = info.name or self._name
        return PluginInfo(info.type, info.name, info.endpoint, tuple(info.supported_versions))

    async def tell(self, problem: str) -> None:
        """How the registration went, empty for well. That a plugin does not listen changes nothing."""
        status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
        try:
            await self._plugin.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        except grpc.RpcError as exc:
            extra = {"socket": str(self._socket), "error": _detail(exc)}
            log.warning("the plugin cannot be told how its registration went", extra=extra)


def _detail(error: grpc.RpcError) -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)()
    return f"{code.name if code else 'unknown'}: {details or 'no details'}"[:512]
