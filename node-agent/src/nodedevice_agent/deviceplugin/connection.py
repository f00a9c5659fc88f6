"""One registered device plugin: its socket, its options, its stream of devices, and the calls to it.

Every call has a deadline, which the kubelet's do not: a plugin that hangs harms nobody but itself.
Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go.
"""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.devices import NO_DEVICES, ListedDevices
from nodedevice_agent.devicemanager.resource import PluginOptions
from nodedevice_agent.deviceplugin import codec as wire
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.unix_sockets import grpc_target

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
OPTIONS_SECONDS = 10.0
PREFERRED_SECONDS = 5.0
ALLOCATE_SECONDS = 30.0
# the one deadline that the kubelet has
PRE_START_SECONDS = 30.0
# Enough for the longest list that is taken. The kubelet takes 4 MiB and drops plugins that list more (kubernetes#109304).
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# A container runtime takes environment, mounts and devices of some KiB. A response stays in memory (decoded too, which can take
# twenty times as much) and in the checkpoint for as long as its pod is there.
MAX_ALLOCATION_BYTES = 256 * 1024
# Options, and the answer to PreStartContainer, which is empty: a plugin of a later API may say a little more.
_MAX_SMALL_BYTES = 64 * 1024
# A longer list is read beside the event loop, where the container runtime may be waiting for an answer: 131,072 devices take a
# second, some 7,000 tens of milliseconds.
_MOST_BYTES_AT_ONCE = 256 * 1024
# of an ID in a list of IDs: its tag and its length
_AROUND_AN_ID_BYTES = 4
_NOT_UNDERSTOOD = "the answer is no message of the device plugin API"
_HUNG_UP = "its connection was closed before it answered: the plugin is gone, or has registered again"

_SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].full_name
_EMPTY: bytes = api_pb2.Empty().SerializeToString()
_Answer = TypeVar("_Answer", bound=Message)

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
        self._is_closed = False

    @classmethod
    async def open(cls, resource_name: str, socket: Path) -> Self:
        """Dial the plugin and ask for its options. Raises PluginFailed, with nothing left open."""
        _check_socket(resource_name, socket)
        channel = grpc.aio.insecure_channel(grpc_target(socket), options=_CHANNEL_OPTIONS)
        try:
            return cls(resource_name, channel, await _options(resource_name, socket, channel))
        except BaseException:
            await channel.close()
            raise

    async def device_lists(self) -> AsyncIterator[ListedDevices]:
        """Complete device lists as they come, until the stream ends in whatever way. Raises PluginFailed if it broke."""
        if self._is_closed:
            return
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(_path("ListAndWatch"))
        stream, listed = method(_EMPTY), NO_DEVICES
        try:
            async for octets in stream:
                listed = await _device_list(octets, listed)
                yield listed
        except DecodeError as exc:
            raise PluginFailed(self.resource_name, "ListAndWatch", _NOT_UNDERSTOOD) from exc
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
        # all that it could choose from, which is too many already
        most_bytes = _MAX_SMALL_BYTES + sum(len(name.encode()) + _AROUND_AN_ID_BYTES for name in available)
        answer = await self._ask(
            "GetPreferredAllocation", request, api_pb2.PreferredAllocationResponse, PREFERRED_SECONDS, most_bytes
        )
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, device_ids: tuple[str, ...]) -> AllocateResponse:
        """The response for one container. Raises PluginFailed, also for an answer without exactly one."""
        request = wire.allocate_request(device_ids)
        answer = await self._ask("Allocate", request, api_pb2.AllocateResponse, ALLOCATE_SECONDS, MAX_ALLOCATION_BYTES)
        if len(answer.container_responses) != 1:
            detail = f"{len(answer.container_responses)} container responses for one container"
            raise PluginFailed(self.resource_name, "Allocate", detail)
        return wire.allocate_response(answer.container_responses[0])

    async def pre_start(self, device_ids: tuple[str, ...]) -> None:
        """A container is about to use these. Raises PluginFailed."""
        request = api_pb2.PreStartContainerRequest(devices_ids=device_ids)
        await self._ask("PreStartContainer", request, api_pb2.PreStartContainerResponse, PRE_START_SECONDS)

    async def _ask(
        self, call: str, request: Message, answer: type[_Answer], seconds: float, most_bytes: int = _MAX_SMALL_BYTES
    ) -> _Answer:
        """Whatever becomes of the call, also that its connection is closed meanwhile, is told to who asked.

        Raises PluginFailed.
        """
        if self._is_closed:
            raise PluginFailed(self.resource_name, call, _HUNG_UP)
        try:
            octets = await _method(self._channel, call)(request.SerializeToString(), timeout=seconds)
            return _parsed(self.resource_name, call, octets, answer, most_bytes)
        except PluginFailed:
            raise
        except grpc.RpcError as exc:
            raise PluginFailed(self.resource_name, call, _detail(exc)) from exc
        except asyncio.CancelledError as exc:
            if _is_cancelled():
                raise
            raise PluginFailed(self.resource_name, call, _HUNG_UP) from exc
        except Exception as exc:
            # it must fail this call alone: what ends the agent comes back with every start, for the call is made again
            log.exception("call of a device plugin failed", extra={"resource_name": self.resource_name, "call": call})
            raise PluginFailed(self.resource_name, call, f"{exc!r}, a defect of this agent") from exc

    async def close(self) -> None:
        self._is_closed = True
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _device_list(octets: bytes, known: ListedDevices) -> ListedDevices:
    """Raises DecodeError."""
    if len(octets) <= _MOST_BYTES_AT_ONCE:
        return wire.device_list(octets, known)
    return await asyncio.to_thread(wire.device_list, octets, known)


def _path(call: str) -> str:
    return f"/{_SERVICE}/{call}"


def _method(channel: grpc.aio.Channel, call: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(_path(call))


async def _options(resource_name: str, socket: Path, channel: grpc.aio.Channel) -> PluginOptions:
    """Raises PluginFailed."""
    call = "GetDevicePluginOptions"
    try:
        await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
        octets = await _method(channel, call)(_EMPTY, timeout=OPTIONS_SECONDS)
    except TimeoutError as exc:
        raise PluginFailed(resource_name, "Dialling", f"no answer on {socket.name} in {DIAL_SECONDS:.0f} s") from exc
    except grpc.RpcError as exc:
        raise PluginFailed(resource_name, call, f"failed to get device plugin options: {_detail(exc)}") from exc
    return wire.options(_parsed(resource_name, call, octets, api_pb2.DevicePluginOptions, _MAX_SMALL_BYTES))


def _parsed(resource_name: str, call: str, octets: bytes, answer: type[_Answer], most_bytes: int) -> _Answer:
    """Looked at for its size before it is parsed, which can make twenty times as much of it. Raises PluginFailed."""
    if len(octets) > most_bytes:
        detail = f"the answer has {len(octets)} bytes; {most_bytes} is the most that is taken"
        raise PluginFailed(resource_name, call, detail)
    try:
        return answer.FromString(octets)
    except DecodeError as exc:
        raise PluginFailed(resource_name, call, _NOT_UNDERSTOOD) from exc


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
