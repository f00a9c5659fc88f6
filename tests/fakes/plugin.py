"""A third-party device plugin for tests of the agent: in this process, with knobs for every way to misbehave.

    plugin = FakePlugin("example.com/fake", {"dev-0": FakeDevice(), "dev-1": FakeDevice(numa_nodes=(1,))})
    await plugin.start(plugin_dir); await plugin.register(); await plugin.update({...}); await plugin.stop()

Knobs say how it misbehaves, and what it answers to Allocate; plugin_process runs it as a process of its own. Behaviour
the agent must live with comes from the kubelet deviceplugin v1beta1 contract and from plugins seen in use.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import grpc
import grpc.aio
from nodedevice_api import device_details_pb2, device_details_pb2_grpc
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from tests.fakes.polling import PATIENCE_SECONDS

StreamEnd = Literal["never", "at_once", "after_first"]


@dataclass(frozen=True)
class RpcFailure:
    """An RPC to be refused with this status."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    details: str = "made to fail"


@dataclass
class Knobs:
    """How the fake misbehaves; each may be turned at any time and holds from the next call on."""

    allocate_error: RpcFailure | None = None
    # Set to an Event: Allocate waits until the test sets it (or for ever).
    allocate_gate: asyncio.Event | None = None
    # An answer without any container response.
    allocate_empty: bool = False
    # So many more container responses than there are containers.
    allocate_more: int = 0
    # What to answer instead of the default; gets the device IDs.
    allocate_answer: Callable[[Sequence[str]], api_pb2.ContainerAllocateResponse] | None = None
    preferred_error: RpcFailure | None = None
    preferred_gate: asyncio.Event | None = None
    # IDs to answer whatever was asked: unknown ones, too few, not available.
    preferred_answer: Sequence[str] | None = None
    preferred_empty: bool = False
    pre_start_error: RpcFailure | None = None
    pre_start_gate: asyncio.Event | None = None
    sync_error: RpcFailure | None = None
    sync_gate: asyncio.Event | None = None
    options_error: RpcFailure | None = None
    options_gate: asyncio.Event | None = None
    # How ListAndWatch ends by itself, and with which error if any.
    stream_end: StreamEnd = "never"
    stream_error: RpcFailure | None = None
    # Lists without end or pause: the same one, or in turn with this other one.
    is_flooding: bool = False
    flood_with: Mapping[str, "FakeDevice"] | None = None
    # A list to send as it is, for IDs that occur twice, are empty or absurd.
    raw_list: list[api_pb2.Device] | None = None


def default_answer(device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
    """One of everything a plugin can answer, for each device, in the order asked."""
    return api_pb2.ContainerAllocateResponse(
        envs={"FAKE_DEVICES": ",".join(device_ids)},
        annotations={"fake.example.com/devices": ",".join(device_ids)},
        mounts=[
            api_pb2.Mount(container_path=f"/fake/{name}", host_path=f"/tmp/{name}", read_only=True)
            for name in device_ids
        ],
        devices=[
            api_pb2.DeviceSpec(container_path=f"/dev/{name}", host_path="/dev/null", permissions="rw")
            for name in device_ids
        ],
    )


if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import RegistrationAsyncStub

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class FakeDevice:
    """One device as the fake lists it; `health` overrides the usual words."""

    healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    health: str | None = None

    def to_wire(self, device_id: str) -> api_pb2.Device:
        """The message for the device list."""
        wire = api_pb2.Device(ID=device_id, health=self.health or ("Healthy" if self.healthy else "Unhealthy"))
        if self.numa_nodes:
            wire.topology.nodes.extend(api_pb2.NUMANode(ID=node) for node in self.numa_nodes)
        return wire


@dataclass(frozen=True)
class Call:
    """One RPC the fake was called with; `device_ids` of its first container request, the rest in `request`."""

    method: str
    device_ids: tuple[str, ...] = ()
    request: Any = None


@dataclass
class FakePlugin:
    """One device plugin on a socket of its own. Nothing is registered unless asked for."""

    resource_name: str = "example.com/fake"
    devices: Mapping[str, FakeDevice] = field(default_factory=dict)
    pre_start_required: bool = False
    preferred_available: bool = False
    holdings_required: bool = False
    socket_name: str = ""
    knobs: Knobs = field(default_factory=Knobs)
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.socket_name = self.socket_name or self.resource_name.replace("/", "-")[-40:] + ".sock"
        self.streams = 0
        self.lists_sent = 0
        self._dir: Path | None = None
        self._server: grpc.aio.Server | None = None
        self._version = 0
        self._end_streams = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._happened = asyncio.Condition()

    @property
    def socket_path(self) -> Path:
        """Where the fake serves; only after start."""
        assert self._dir is not None, "start the plugin first"
        return self._dir / self.socket_name

    async def start(self, plugin_dir: Path) -> None:
        """Serve on `<plugin_dir>/<socket_name>`; a socket that is there is replaced, as careless plugins do.

        After a stop it may be started again, in another event loop too.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            # a condition belongs to the loop in which it was first waited for
            self._happened = asyncio.Condition()
        self._loop = loop
        self._dir = plugin_dir
        self._end_streams = False
        self._server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(_Service(self), self._server)
        device_details_pb2_grpc.add_DeviceHoldingsServicer_to_server(_Holdings(self), self._server)
        self._server.add_insecure_port(f"unix:{self.socket_path}")
        await self._server.start()

    async def join(self, plugin_dir: Path) -> None:
        """Serve there, and register."""
        await self.start(plugin_dir)
        await self.register()

    async def register(
        self, *, version: str = "v1beta1", endpoint: str | None = None, resource_name: str | None = None
    ) -> None:
        """Announce the fake, or whatever the arguments say instead. Raises grpc.aio.AioRpcError when refused."""
        assert self._dir is not None, "start the plugin first"
        request = api_pb2.RegisterRequest(
            version=version,
            endpoint=self.socket_name if endpoint is None else endpoint,
            resource_name=self.resource_name if resource_name is None else resource_name,
            options=self.wire_options(),
        )
        target = f"unix:{self._dir / 'kubelet.sock'}"
        options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            stub = cast("RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
            await stub.Register(request, timeout=60)

    async def update(self, devices: Mapping[str, FakeDevice]) -> None:
        """Send a new list on every open stream."""
        self.devices = dict(devices)
        await self._bump()

    async def set_health(self, device_id: str, healthy: bool) -> None:
        """The same list, but for one device's health."""
        old = self.devices[device_id]
        await self.update({**self.devices, device_id: FakeDevice(healthy, old.numa_nodes)})

    async def resend(self) -> None:
        """Send the list again although nothing changed."""
        await self._bump()

    async def end_streams(self) -> None:
        """End every open ListAndWatch call, and go on serving."""
        self._end_streams = True
        await self._bump()
        await self._until(lambda: self.streams == 0)
        self._end_streams = False

    async def stop(self, *, leave_socket: bool = False) -> None:
        """Stop serving, open calls are cut; the socket file stays behind only if asked, as after a kill."""
        server, self._server = self._server, None
        if server is None:
            return
        kept = self.socket_path.with_suffix(".kept")
        if leave_socket:
            # the server removes the path it was bound to; a killed process would not have
            self.socket_path.rename(kept)
        await server.stop(None)
        if leave_socket:
            kept.rename(self.socket_path)
        else:
            self.socket_path.unlink(missing_ok=True)

    def calls_of(self, method: str) -> list[Call]:
        """The calls of one RPC, in order."""
        return [call for call in self.calls if call.method == method]

    async def wait_for_calls(self, method: str, count: int = 1) -> list[Call]:
        """Wait until an RPC has been called this often."""
        await self._until(lambda: len(self.calls_of(method)) >= count)
        return self.calls_of(method)

    async def wait_for_streams(self, count: int = 1) -> None:
        """Wait until exactly so many ListAndWatch calls are open."""
        await self._until(lambda: self.streams == count)

    async def wait_for_lists(self, count: int) -> None:
        """Wait until so many lists have been handed to gRPC, over all streams."""
        await self._until(lambda: self.lists_sent >= count)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Checked after each call, list and stream. Raises TimeoutError when it does not hold for a minute."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._happened:
            await self._happened.wait_for(holds)

    def wire_options(self) -> api_pb2.DevicePluginOptions:
        """What the fake says it wants."""
        options = api_pb2.DevicePluginOptions(
            pre_start_required=self.pre_start_required, get_preferred_allocation_available=self.preferred_available
        )
        details = device_details_pb2.PluginOptionsDetails(holdings_required=self.holdings_required)
        options.MergeFromString(details.SerializeToString())
        return options

    async def record(self, call: Call) -> None:
        """Remember a call and wake who waits for it."""
        self.calls.append(call)
        await self._notify()

    async def lists(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        """The lists of one stream: at once, then at each change, until it is to end."""
        await self._stream_opened(1)
        try:
            version = -1
            while not self._end_streams:
                version = self._version
                yield self._wire_list()
                self.lists_sent += 1
                await self._notify()
                if self.knobs.stream_end == "after_first":
                    return
                if self.knobs.is_flooding:
                    await self._flood()
                    continue
                async with self._happened:
                    while self._version == version:
                        await self._happened.wait()
        finally:
            await self._stream_opened(-1)

    async def _flood(self) -> None:
        """Before the next list of a flood."""
        if self.knobs.flood_with is not None:
            self.devices, self.knobs.flood_with = self.knobs.flood_with, self.devices
        # gRPC's own tasks have to run
        await asyncio.sleep(0)

    async def _stream_opened(self, change: int) -> None:
        self.streams += change
        await self._notify()

    async def _bump(self) -> None:
        self._version += 1
        await self._notify()

    async def _notify(self) -> None:
        async with self._happened:
            self._happened.notify_all()

    def _wire_list(self) -> api_pb2.ListAndWatchResponse:
        listed = [device.to_wire(device_id) for device_id, device in self.devices.items()]
        return api_pb2.ListAndWatchResponse(devices=listed if self.knobs.raw_list is None else self.knobs.raw_list)


class _Service(api_pb2_grpc.DevicePluginServicer):
    """The wire side: records each call, then does what the knobs say."""

    def __init__(self, plugin: FakePlugin) -> None:
        self._plugin = plugin

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        knobs = self._plugin.knobs
        await self._plugin.record(Call("GetDevicePluginOptions"))
        await _hold_or_fail(context, knobs.options_gate, knobs.options_error)
        return self._plugin.wire_options()

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        knobs = self._plugin.knobs
        await self._plugin.record(Call("ListAndWatch"))
        if knobs.stream_end != "at_once":
            async with contextlib.aclosing(cast("Any", self._plugin.lists())) as lists:
                async for response in lists:
                    yield response
        await _hold_or_fail(context, None, knobs.stream_error)

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        knobs = self._plugin.knobs
        asked = request.container_requests[0]
        await self._plugin.record(Call("GetPreferredAllocation", tuple(asked.available_deviceIDs), request))
        await _hold_or_fail(context, knobs.preferred_gate, knobs.preferred_error)
        response = api_pb2.PreferredAllocationResponse()
        if not knobs.preferred_empty:
            # by default the highest IDs, so that a test sees whose choice it was
            rest = sorted(set(asked.available_deviceIDs) - set(asked.must_include_deviceIDs), reverse=True)
            chosen = [*asked.must_include_deviceIDs, *rest][: asked.allocation_size]
            response.container_responses.add(
                deviceIDs=chosen if knobs.preferred_answer is None else knobs.preferred_answer
            )
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        knobs = self._plugin.knobs
        first = tuple(request.container_requests[0].devices_ids) if request.container_requests else ()
        await self._plugin.record(Call("Allocate", first, request))
        await _hold_or_fail(context, knobs.allocate_gate, knobs.allocate_error)
        answer = knobs.allocate_answer or default_answer
        asked = [] if knobs.allocate_empty else request.container_requests
        answers = [answer(container.devices_ids) for container in asked]
        answers += [api_pb2.ContainerAllocateResponse(envs={"FAKE_MORE": "1"})] * knobs.allocate_more
        return api_pb2.AllocateResponse(container_responses=answers)

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        await self._plugin.record(Call("PreStartContainer", tuple(request.devices_ids), request))
        await _hold_or_fail(context, self._plugin.knobs.pre_start_gate, self._plugin.knobs.pre_start_error)
        return api_pb2.PreStartContainerResponse()


class _Holdings(device_details_pb2_grpc.DeviceHoldingsServicer):
    """Records the holdings of each call."""

    def __init__(self, plugin: FakePlugin) -> None:
        self._plugin = plugin

    async def Sync(self, request: device_details_pb2.Holdings, context: Context) -> device_details_pb2.HoldingsSynced:
        knobs = self._plugin.knobs
        held = tuple(f"{holding.pod_uid}/{holding.container}" for holding in request.holdings)
        await self._plugin.record(Call("Sync", held, request))
        await _hold_or_fail(context, knobs.sync_gate, knobs.sync_error)
        return device_details_pb2.HoldingsSynced()


def service_of(plugin: FakePlugin) -> api_pb2_grpc.DevicePluginServicer:
    """What serves the fake's calls, for a server that serves more than this."""
    return _Service(plugin)


async def _hold_or_fail(context: Context, gate: asyncio.Event | None, failure: RpcFailure | None) -> None:
    if gate is not None:
        await gate.wait()
    if failure is not None:
        await context.abort(failure.code, failure.details)
