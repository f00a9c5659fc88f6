"""Serves the devices of one resource as a DevicePlugin service on a Unix socket; decisions are left to its source.

The socket is put into place whole, and removed by nobody but its owner.
Source: kubelet deviceplugin v1beta1.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, PluginDevice
from nodedevice_agent.lib.unix_sockets import SocketIdentity, socket_identity

Devices = tuple[PluginDevice, ...]
# reason and message
Trouble = tuple[str, str]


class DeviceList:
    """The latest complete list of devices, and a way to be told of each newer one.

    A watcher that is slower than the changes gets the newest list only: each list replaces the one before it, so nothing
    is lost by leaving one out.
    """

    def __init__(self) -> None:
        self.latest: Devices = ()
        # what is wrong with the whole: a word and a sentence; empty when nothing is
        self.trouble: Trouble = ("", "")
        self._changed = asyncio.Event()

    def publish(self, devices: Iterable[PluginDevice], trouble: Trouble = ("", "")) -> bool:
        """Replace the list; answers whether that changed it."""
        fresh = tuple(devices)
        if (fresh, trouble) == (self.latest, self.trouble):
            return False
        self.latest, self.trouble = fresh, trouble
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def watch(self) -> AsyncIterator[Devices]:
        """The list as it is now, then each that differs from the one given before."""
        given: tuple[Devices, Trouble] | None = None
        while True:
            changed = self._changed
            if (self.latest, self.trouble) != given:
                given = (self.latest, self.trouble)
                yield self.latest
            else:
                await changed.wait()


class DeviceSource(Protocol):
    """Where a plugin's devices come from."""

    resource_name: str
    devices: DeviceList
    # whether preferred() is worth asking
    prefers: bool

    def refresh(self) -> None:
        """Look once and publish, so that the first list sent is the true one. May raise OSError."""

    async def run(self) -> None:
        """Keep the list right until cancelled."""

    def allocate(self, device_ids: Iterable[str]) -> ContainerAllocation:
        """What a container with these devices needs. Raises AllocationRefused."""

    def preferred(self, available: Iterable[str], must_include: Iterable[str], size: int) -> tuple[str, ...]:
        """Which of the available devices to hand out together. Raises AllocationRefused."""


_PRIVATE = 0o177
_serial = itertools.count(1)


class CannotServe(Exception):
    """No socket can be made for the plugin; the text names the path and the remedy."""


class Service(api_pb2_grpc.DevicePluginServicer):
    """A DevicePlugin service; `streams` is how many ListAndWatch calls are open, for nobody listening means nobody knows us."""

    streams: int


@asynccontextmanager
async def serving(service: Service, path: Path) -> AsyncIterator[SocketIdentity]:
    """Serve on this path, mode 0600; afterwards the socket is gone, unless it is another's by now. Raises CannotServe."""
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)
    own_socket = _bind(server, path)
    await server.start()
    try:
        yield own_socket
    finally:
        _remove(path, own_socket)
        await server.stop(None)


def _remove(path: Path, own_socket: SocketIdentity) -> None:
    if socket_identity(path) == own_socket:
        path.unlink(missing_ok=True)


def _bind(server: grpc.aio.Server, path: Path) -> SocketIdentity:
    """Bind under a name of this moment, then move into place.

    A server removes the path it was bound to when it stops, whoever's socket is there by then: so it must never have been
    bound to the one that the next server uses.
    """
    own = path.with_name(f".{os.getpid()}-{next(_serial)}")
    umask = os.umask(_PRIVATE)
    try:
        server.add_insecure_port(f"unix:{own}")
    except RuntimeError as error:
        raise CannotServe(
            f"cannot make a socket in {path.parent}: {error}; is the directory there and writable?"
        ) from None
    finally:
        os.umask(umask)
    try:
        own.rename(path)
    except OSError as error:
        own.unlink(missing_ok=True)
        raise CannotServe(f"cannot move the new socket to {path}: {error.strerror}") from error
    identity = socket_identity(path)
    if identity is None:
        raise CannotServe(f"{path} vanished while it was made")
    return identity


log = logging.getLogger(__name__)

_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")


class DevicePluginService(Service):
    """Serves one source."""

    def __init__(self, source: DeviceSource) -> None:
        self._source = source
        self.streams = 0

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        return options(self._source)

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.streams += 1
        try:
            async for devices in self._source.devices.watch():
                yield list_to_wire(devices, *self._source.devices.trouble)
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        if not self._source.prefers:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{self._source.resource_name}: any choice is as good")
        response = api_pb2.PreferredAllocationResponse()
        for asked in request.container_requests:
            choose = partial(
                self._source.preferred, asked.available_deviceIDs, asked.must_include_deviceIDs, asked.allocation_size
            )
            response.container_responses.add(deviceIDs=await _or_refuse(context, choose))
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        for asked in request.container_requests:
            allocation = await _or_refuse(context, partial(self._source.allocate, asked.devices_ids))
            response.container_responses.append(_allocation_to_wire(allocation))
        log.debug("devices allocated", extra={"resource_name": self._source.resource_name})
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        return api_pb2.PreStartContainerResponse()


def options(source: DeviceSource) -> api_pb2.DevicePluginOptions:
    """What the source offers beside the necessary."""
    return api_pb2.DevicePluginOptions(get_preferred_allocation_available=source.prefers)


async def _or_refuse(context: Context, decide: Callable[[], Answer]) -> Answer:
    try:
        return decide()
    except AllocationRefused as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise


def list_to_wire(devices: Iterable[PluginDevice], reason: str = "", message: str = "") -> api_pb2.ListAndWatchResponse:
    """reason and message: what is wrong with the whole. v1beta1 has no room for them; see DeviceListDetails."""
    wire = api_pb2.ListAndWatchResponse(devices=[device_to_wire(device) for device in devices])
    if reason or message:
        wire.MergeFromString(DeviceListDetails(reason=reason, message=message).SerializeToString())
    return wire


def device_to_wire(device: PluginDevice) -> api_pb2.Device:
    """As it stands in a list."""
    wire = api_pb2.Device(ID=device.id, health=_HEALTHY if device.is_healthy else _UNHEALTHY)
    if device.numa_nodes:
        # an empty topology is not the same as none: the device manager would align to nothing
        wire.topology.nodes.extend(api_pb2.NUMANode(ID=node) for node in device.numa_nodes)
    if device.reason or device.message or device.attributes:
        # fields that v1beta1 does not have: kept among those that its messages pass on unread
        details = DeviceDetails(reason=device.reason, message=device.message, attributes=dict(device.attributes))
        wire.MergeFromString(details.SerializeToString(deterministic=True))
    return wire


def _allocation_to_wire(allocation: ContainerAllocation) -> api_pb2.ContainerAllocateResponse:
    return api_pb2.ContainerAllocateResponse(
        envs=allocation.env,
        annotations=allocation.annotations,
        mounts=[
            api_pb2.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in allocation.mounts
        ],
        devices=[
            api_pb2.DeviceSpec(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
            for node in allocation.device_nodes
        ],
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in allocation.cdi_devices],
    )
