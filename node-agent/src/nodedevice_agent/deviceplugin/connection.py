"""One registered device plugin: its socket, its options, its stream of devices, and the calls to it.

Every call has a timeout, unlike the kubelet's: a plugin that hangs affects only itself.
Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go.
"""

import asyncio
import hashlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from msgspec import structs
from nodedevice_api import device_details_pb2
from nodedevice_api.device_details_pb2 import ContainerAllocateDetails
from nodedevice_api.device_ids import original_id, shown_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.pacing import TokenBucket
from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.holdings import Holding
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, NO_DEVICES, ListedDevices
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.deviceplugin.plugin_liveness import Answers
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.lib.filesystem import grpc_target
from nodedevice_agent.lib.grpc_server import CHANNEL_OPTIONS

log = logging.getLogger(__name__)

DIAL_SECONDS = 10.0
OPTIONS_SECONDS = 10.0
ASK_SECONDS = 10.0
PREFERRED_SECONDS = 5.0
ALLOCATE_SECONDS = 30.0
# the only timeout that the kubelet has
PRE_START_SECONDS = 30.0
# A plugin may have to remove directories; it is not called to allocate meanwhile.
SYNC_SECONDS = 30.0
# Enough for the longest accepted list. The kubelet accepts 4 MiB and drops plugins that list more (kubernetes#109304).
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# A container has environment, mounts and devices of some KiB. A response stays in memory (decoded too, which can take
# twenty times as much) and in the checkpoint for as long as its pod is there.
MAX_ALLOCATION_BYTES = 256 * 1024
# Options, and the response to PreStartContainer, which is empty: a later API may have a few more fields.
_MAX_SMALL_BYTES = 64 * 1024
# The limit of one stream; a faster plugin has to wait (NVIDIA's sends 6,400 lists a second for a lost GPU).
LISTS_PER_SECOND = 50.0
LISTS_AT_ONCE = 50
# The bytes that a plugin can send before it has to wait. gRPC's default is 4 MiB, minutes of outdated small lists.
# Longer messages still pass at the same speed.
_READ_AHEAD_BYTES = 4096
# A longer list is decoded in a thread, because the event loop serves the container runtime: 131,072 devices take a
# quarter of a second, some 1,800 three milliseconds. One after the other: as many threads as there are streams would each get
# as much of the interpreter as the loop.
_MAX_BYTES_IN_LOOP = 32 * 1024
# the size of a list that is decoded without a check for room
_SHORT_BYTES = 4096
_INVALID = "the response is not a message of the device plugin API"
_CLOSED = "the connection was closed before it responded: the plugin has stopped, or has registered again"

_SILENT = (
    "it does not respond: its last calls timed out; the agent checks every half a minute whether it responds again"
)
# the share of a deadline before which DEADLINE_EXCEEDED must come from the plugin
_LATE_SHARE = 0.9

_SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].full_name
_HOLDINGS: str = device_details_pb2.DESCRIPTOR.services_by_name["DeviceHoldings"].full_name
_EMPTY: bytes = api_pb2.Empty().SerializeToString()
_Response = TypeVar("_Response", bound=Message)


def open_channel(socket: Path, max_message_bytes: int) -> grpc.aio.Channel:
    """A channel to the socket of a plugin or of the kubelet."""
    options: list[tuple[str, str | int]] = [
        *CHANNEL_OPTIONS,
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.http2.lookahead_bytes", _READ_AHEAD_BYTES),
        # otherwise it grows with the data of a plugin
        ("grpc.http2.bdp_probe", 0),
    ]
    return grpc.aio.insecure_channel(grpc_target(socket), options=options)


class PluginConnection:
    """An open connection, made by open(). socket: the path that the plugin registered. Device IDs are in the shown form."""

    def __init__(self, resource_name: str, socket: Path, channel: grpc.aio.Channel, options: PluginOptions) -> None:
        self.resource_name = resource_name
        self.socket = socket
        self.options = options
        self.answers = Answers()
        # the last counted list: the next one reuses its equal devices
        self.last = NO_DEVICES
        # the bytes of that list while it is being processed; and its digest
        self.octets = self.digest = b""
        # the number of earlier connections that ended soon after the dialling
        self.ended_before = 0
        # called some time after its stream has ended, so that its owner can reconnect
        self.on_ended: Callable[[], None] = lambda: None
        self._channel = channel
        self._bucket = TokenBucket(LISTS_PER_SECOND, LISTS_AT_ONCE, asyncio.get_running_loop().time())
        self._is_too_fast = False
        self.is_closed = False

    @classmethod
    async def open(
        cls, resource_name: str, socket: Path, name: str = "", built_in: BuiltInSockets | None = None
    ) -> Self:
        """Dial the plugin and get its options. Raises PluginFailed, with nothing left open.

        name: of the socket's file, if it differs from the registered one. built_in: the plugins of this process.
        """
        dialled = socket.with_name(name or socket.name)
        _check_socket(resource_name, dialled)
        own = built_in.find(dialled, resource_name) if built_in is not None else None
        channel = open_channel(dialled, MAX_MESSAGE_BYTES)
        try:
            options = await _options(resource_name, dialled, channel)
            if own is not None and built_in is not None:
                # Else it is unknown which of the two sockets was dialled. A built-in plugin that has ended is no other vendor's.
                if built_in.find(dialled, resource_name) != own:
                    raise PluginFailed(resource_name, "Register", "its socket was replaced or removed; register again")
                options = structs.replace(options, scope=own.scope)
            return cls(resource_name, socket, channel, options)
        except BaseException:
            await channel.close()
            raise

    async def device_lists(
        self, turn: asyncio.Lock | None = None, most: Callable[[], int] | None = None
    ) -> AsyncIterator[ListedDevices]:
        """Complete device lists as they come, until the stream ends; LISTS_PER_SECOND at most, and then the plugin has to wait.

        turn: held while a long list is decoded, so that all streams take turns. most: devices that there is room for then.
        Raises PluginFailed if it ended with an error.
        """
        if self.is_closed:
            return
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
            f"/{_SERVICE}/ListAndWatch"
        )
        stream, self.digest = method(_EMPTY), b""
        turn, most = turn or asyncio.Lock(), most or (lambda: MAX_DEVICES)
        try:
            # its iterator would keep each message until the next one, which may never come
            while isinstance(octets := await stream.read(), bytes):
                earlier, self.digest = self.digest, hashlib.blake2b(octets).digest()
                # the same bytes are not decoded again; kept in their place, a few of the longest lists would fill the memory
                if self.digest != earlier:
                    self.last = await self.decoded(octets, turn, most)
                self.octets = octets
                yield self.last
                self.octets = octets = b""
                await self._pause()
        except DecodeError as exc:
            raise PluginFailed(self.resource_name, "ListAndWatch", _INVALID) from exc
        except grpc.RpcError as exc:
            raise PluginFailed(self.resource_name, "ListAndWatch", rpc_error_text(exc)) from exc
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
        finally:
            stream.cancel()

    async def _pause(self) -> None:
        """Wait until the next list may be read."""
        seconds = self._bucket.reserve(asyncio.get_running_loop().time())
        if seconds and not self._is_too_fast:
            self._is_too_fast = True
            extra = {"resource_name": self.resource_name, "lists_per_second": LISTS_PER_SECOND}
            log.warning("device plugin sends too many device lists; reading them more slowly", extra=extra)
        await asyncio.sleep(seconds)

    async def decoded(self, octets: bytes, turn: asyncio.Lock, most: Callable[[], int]) -> ListedDevices:
        """Read one list; turn, most: as in device_lists. Raises DecodeError."""
        decode = partial(codec.device_list, octets, self.last, is_built_in=bool(self.options.scope))
        if len(octets) <= _MAX_BYTES_IN_LOOP:
            return decode(most=most() if len(octets) > _SHORT_BYTES else MAX_DEVICES)
        async with turn:
            now = asyncio.get_running_loop().time
            began = now()
            listed = await in_thread(partial(decode, most=most()))
            # the event loop has the interpreter for half of the time, for any lists of plugins
            await asyncio.sleep(now() - began)
            return listed

    async def ask(self) -> None:
        """Request the options again, to check whether the plugin responds."""
        try:
            with self.answers.during():
                await self._octets("GetDevicePluginOptions", _EMPTY, ASK_SECONDS)
        except (TimeoutError, grpc.RpcError) as exc:
            extra = {"resource_name": self.resource_name, "error": str(exc) or type(exc).__name__}
            log.debug("asked the device plugin for its options", extra=extra)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise

    async def preferred(self, available: tuple[str, ...], must_include: tuple[str, ...], size: int) -> tuple[str, ...]:
        """The device IDs that the plugin prefers. Raises PluginFailed."""
        asked = api_pb2.ContainerPreferredAllocationRequest(
            available_deviceIDs=map(original_id, available),
            must_include_deviceIDs=map(original_id, must_include),
            allocation_size=size,
        )
        request = api_pb2.PreferredAllocationRequest(container_requests=[asked])
        # it cannot prefer more than the available devices
        max_bytes = _MAX_SMALL_BYTES + request.ByteSize()
        response = await self._call(
            "GetPreferredAllocation", request, api_pb2.PreferredAllocationResponse, PREFERRED_SECONDS, max_bytes
        )
        answers = response.container_responses
        return tuple(map(shown_id, answers[0].deviceIDs)) if answers else ()

    async def allocate(
        self, device_ids: tuple[str, ...], details: ContainerAllocateDetails | None = None
    ) -> AllocateResponse:
        """The first response, as with the kubelet. details: the container, if known. Raises PluginFailed, also for none."""
        asked = api_pb2.ContainerAllocateRequest(devices_ids=map(original_id, device_ids))
        if details is not None:
            asked.MergeFromString(details.SerializeToString(deterministic=True))
        request = api_pb2.AllocateRequest(container_requests=[asked])
        response = await self._call(
            "Allocate", request, api_pb2.AllocateResponse, ALLOCATE_SECONDS, MAX_ALLOCATION_BYTES
        )
        if not response.container_responses:
            raise PluginFailed(self.resource_name, "Allocate", "0 container responses for one container")
        if (count := codec.entries_of(response.container_responses[0])) > codec.MAX_ENTRIES:
            detail = f"a response with {count} entries, which exceeds the limit of {codec.MAX_ENTRIES}"
            raise PluginFailed(self.resource_name, "Allocate", detail)
        return codec.allocate_response(response.container_responses[0])

    async def pre_start(self, device_ids: tuple[str, ...]) -> None:
        """A container is about to use these. Raises PluginFailed."""
        request = api_pb2.PreStartContainerRequest(devices_ids=map(original_id, device_ids))
        await self._call("PreStartContainer", request, api_pb2.PreStartContainerResponse, PRE_START_SECONDS)

    async def sync_holdings(self, holdings: Iterable[Holding]) -> None:
        """These are all holdings of its resource. Raises PluginFailed."""
        wire = (
            device_details_pb2.Holding(
                pod_uid=held.pod_uid,
                container=held.container,
                device_ids=map(original_id, held.device_ids),
                response=held.response,
            )
            for held in holdings
        )
        request = device_details_pb2.Holdings(holdings=wire)
        await self._call("Sync", request, device_details_pb2.HoldingsSynced, SYNC_SECONDS, service=_HOLDINGS)

    async def _call(
        self,
        call: str,
        request: Message,
        response: type[_Response],
        seconds: float,
        max_bytes: int = _MAX_SMALL_BYTES,
        service: str = _SERVICE,
    ) -> _Response:
        """Raises PluginFailed for every failure of the call, also if its connection is closed meanwhile."""
        if self.is_closed:
            raise PluginFailed(self.resource_name, call, _CLOSED)
        if self.answers.is_silent:
            raise PluginFailed(self.resource_name, call, _SILENT)
        try:
            with self.answers.during():
                octets = await self._octets(call, request.SerializeToString(), seconds, service)
            return _decoded(self.resource_name, call, octets, response, max_bytes)
        except TimeoutError as exc:
            raise PluginFailed(self.resource_name, call, str(exc)) from exc
        except grpc.RpcError as exc:
            raise PluginFailed(self.resource_name, call, rpc_error_text(exc)) from exc
        except asyncio.CancelledError as exc:
            if _is_cancelled():
                raise
            raise PluginFailed(self.resource_name, call, _CLOSED) from exc

    async def _octets(self, call: str, request: bytes, seconds: float, service: str = _SERVICE) -> bytes:
        """Raises TimeoutError if the plugin does not respond in time, RpcError for any other failure."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await _method(self._channel, call, service)(request, timeout=seconds)
        except grpc.aio.AioRpcError as exc:
            # the plugin may return this code itself, if its own request was late
            is_late = loop.time() - began >= seconds * _LATE_SHARE
            if is_late and exc.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(rpc_error_text(exc)) from exc
            raise

    async def aclose(self) -> None:
        self.is_closed = True
        # Freed at once: until the next garbage collection a long list would stay for minutes.
        self.last, self.octets, self.answers.on_change = NO_DEVICES, b"", lambda does: None
        await self._channel.close()


def _method(
    channel: grpc.aio.Channel, call: str, service: str = _SERVICE
) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(f"/{service}/{call}")


async def _options(resource_name: str, socket: Path, channel: grpc.aio.Channel) -> PluginOptions:
    """Raises PluginFailed."""
    call = "GetDevicePluginOptions"
    try:
        await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
        octets = await _method(channel, call)(_EMPTY, timeout=OPTIONS_SECONDS)
    except TimeoutError as exc:
        raise PluginFailed(
            resource_name, "Dialling", f"no response on {socket.name} within {DIAL_SECONDS:.0f} s"
        ) from exc
    except grpc.RpcError as exc:
        raise PluginFailed(resource_name, call, f"failed to get device plugin options: {rpc_error_text(exc)}") from exc
    options = _decoded(resource_name, call, octets, api_pb2.DevicePluginOptions, _MAX_SMALL_BYTES)
    holdings_required = codec.holdings_required(octets)
    return PluginOptions(options.pre_start_required, options.get_preferred_allocation_available, holdings_required)


def _decoded(resource_name: str, call: str, octets: bytes, response: type[_Response], max_bytes: int) -> _Response:
    """Checks the size before it decodes, which can take twenty times as much memory. Raises PluginFailed."""
    if len(octets) > max_bytes:
        detail = f"the response of {len(octets)} bytes exceeds the limit of {max_bytes}"
        raise PluginFailed(resource_name, call, detail)
    try:
        return response.FromString(octets)
    except DecodeError as exc:
        raise PluginFailed(resource_name, call, _INVALID) from exc


def _is_cancelled() -> bool:
    """Whether the current task itself is being cancelled: grpc raises CancelledError also from a call whose channel is closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check_socket(resource_name: str, socket: Path) -> None:
    """Reject files other than sockets, and links. Raises PluginFailed."""
    try:
        mode = os.lstat(socket).st_mode
    except OSError as exc:
        detail = f"socket {socket.name} does not exist ({exc.strerror}); a plugin must serve before it registers"
        raise PluginFailed(resource_name, "Dialling", detail) from exc
    if not stat.S_ISSOCK(mode):
        raise PluginFailed(resource_name, "Dialling", f"{socket.name} is not a socket")


def rpc_error_text(error: grpc.RpcError) -> str:
    code = getattr(error, "code", lambda: None)()
    details = getattr(error, "details", lambda: None)()
    return f"{code.name if code else 'unknown'}: {details or 'no details'}"
