"""One registered device plugin: its socket, its options, its stream of devices, and the calls to it.

Every call has a deadline, which the kubelet's do not: a plugin that hangs harms nobody but itself.
Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from nodedevice_agent.core.devices import DeviceList
from nodedevice_agent.core.resources import PluginOptions
from nodedevice_agent.edges import wire
from nodedevice_agent.edges.unix_sockets import grpc_target
from nodedevice_agent.errors import PluginFailed

DIAL_SECONDS = 10.0
OPTIONS_SECONDS = 10.0
PREFERRED_SECONDS = 5.0
ALLOCATE_SECONDS = 30.0
# the one deadline that the kubelet has
PRE_START_SECONDS = 30.0
# the kubelet takes 4 MiB and drops plugins that list more (kubernetes#109304)
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# grpc hands over None, and no error, for a message that it cannot parse
_NOT_UNDERSTOOD = "the answer is no message of the device plugin API"
_HUNG_UP = "its connection was closed before it answered: the plugin is gone, or has registered again"

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

_CHANNEL_OPTIONS = [
    # Go, Rust and C# servers refuse the escaped socket path that grpc would send as :authority
    ("grpc.default_authority", "localhost"),
    # else a new channel to a path that was served before may still talk to the old server
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class PluginConnection:
    """An open connection. Use open(); closing it ends the stream."""

    def __init__(self, resource_name: str, channel: grpc.aio.Channel, options: PluginOptions) -> None:
        self.resource_name = resource_name
        self.options = options
        self._channel = channel
        self._plugin = _stub(channel)
        self._is_closed = False

    @classmethod
    async def open(cls, resource_name: str, socket: Path) -> Self:
        """Dial the plugin and ask for its options. Raises PluginFailed, with nothing left open."""
        _check_socket(resource_name, socket)
        channel = grpc.aio.insecure_channel(grpc_target(socket), options=_CHANNEL_OPTIONS)
        try:
            await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
            options = await _stub(channel).GetDevicePluginOptions(api_pb2.Empty(), timeout=OPTIONS_SECONDS)
        except TimeoutError as exc:
            await channel.close()
            raise PluginFailed(
                resource_name, "Dialling", f"no answer on {socket.name} in {DIAL_SECONDS:.0f} s"
            ) from exc
        except grpc.RpcError as exc:
            await channel.close()
            detail = f"failed to get device plugin options: {_detail(exc)}"
            raise PluginFailed(resource_name, "GetDevicePluginOptions", detail) from exc
        except BaseException:
            await channel.close()
            raise
        if options is None:
            await channel.close()
            raise PluginFailed(resource_name, "GetDevicePluginOptions", _NOT_UNDERSTOOD)
        return cls(resource_name, channel, wire.options(options))

    async def device_lists(self) -> AsyncIterator[DeviceList]:
        """Complete device lists as they come, until the stream ends in whatever way. Raises PluginFailed if it broke."""
        if self._is_closed:
            return
        stream = self._plugin.ListAndWatch(api_pb2.Empty())
        try:
            async for message in stream:
                if message is None:
                    raise PluginFailed(self.resource_name, "ListAndWatch", _NOT_UNDERSTOOD)
                yield wire.device_list(message)
        except grpc.RpcError as exc:
            raise PluginFailed(self.resource_name, "ListAndWatch", _detail(exc)) from exc
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
        finally:
            stream.cancel()

    async def preferred(self, available: tuple[str, ...], must_include: tuple[str, ...], size: int) -> tuple[str, ...]:
        """The plugin's advice. Raises PluginFailed."""
        request = wire.preferred_request(available, must_include, size)
        method = self._plugin.GetPreferredAllocation
        answer = await self._ask("GetPreferredAllocation", method, request, PREFERRED_SECONDS)
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, device_ids: tuple[str, ...]) -> bytes:
        """The ContainerAllocateResponse, protobuf bytes. Raises PluginFailed, also for an answer without one."""
        request = wire.allocate_request(device_ids)
        answer = await self._ask("Allocate", self._plugin.Allocate, request, ALLOCATE_SECONDS)
        if len(answer.container_responses) != 1:
            detail = f"{len(answer.container_responses)} container responses for one container"
            raise PluginFailed(self.resource_name, "Allocate", detail)
        response: bytes = answer.container_responses[0].SerializeToString(deterministic=True)
        return response

    async def pre_start(self, device_ids: tuple[str, ...]) -> None:
        """A container is about to use these. Raises PluginFailed."""
        request = api_pb2.PreStartContainerRequest(devices_ids=device_ids)
        await self._ask("PreStartContainer", self._plugin.PreStartContainer, request, PRE_START_SECONDS)

    async def _ask(
        self, call: str, method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Answer], request: _Request, seconds: float
    ) -> _Answer:
        """Whatever becomes of the call, also that its connection is closed meanwhile, is told to who asked.

        Raises PluginFailed.
        """
        if self._is_closed:
            raise PluginFailed(self.resource_name, call, _HUNG_UP)
        try:
            answer: _Answer | None = await method(request, timeout=seconds)
        except grpc.RpcError as exc:
            raise PluginFailed(self.resource_name, call, _detail(exc)) from exc
        except asyncio.CancelledError as exc:
            if _is_cancelled():
                raise
            raise PluginFailed(self.resource_name, call, _HUNG_UP) from exc
        if answer is None:
            raise PluginFailed(self.resource_name, call, _NOT_UNDERSTOOD)
        return answer

    async def close(self) -> None:
        self._is_closed = True
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _stub(channel: grpc.aio.Channel) -> "api_pb2_grpc.DevicePluginAsyncStub":
    # the asynchronous stub exists for the type checker alone
    return cast("api_pb2_grpc.DevicePluginAsyncStub", api_pb2_grpc.DevicePluginStub(channel))


def _is_cancelled() -> bool:
    """Whether the current task itself is being cancelled.

    grpc raises CancelledError also from a call whose channel is closed. Taken for a cancellation, that would end whoever asked
    without a word, and the device manager would wait for the answer for ever.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check_socket(resource_name: str, socket: Path) -> None:
    """A socket in the plugin directory itself: a link out of it is not followed. Raises PluginFailed."""
    try:
        mode = os.lstat(socket).st_mode
    except OSError as exc:
        detail = f"socket {socket.name} is not there ({exc.strerror}); a plugin has to serve before it registers"
        raise PluginFailed(resource_name, "Dialling", detail) from exc
    if not stat.S_ISSOCK(mode):
        raise PluginFailed(resource_name, "Dialling", f"{socket.name} is not a socket")


def _detail(error: grpc.RpcError) -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)()
    return f"{code.name if code else 'unknown'}: {details or 'no details'}"
