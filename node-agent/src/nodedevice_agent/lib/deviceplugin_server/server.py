"""Serves the devices of one resource as a DevicePlugin service on a Unix socket; a DeviceSource makes the decisions.

The socket is bound under a temporary name and renamed into place; only its owner removes it.
Source: kubelet deviceplugin v1beta1.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from msgspec import structs
from nodedevice_api import device_details_pb2, device_details_pb2_grpc
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.names import Reason
from nodedevice_api.parts import PartRules
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from nodedevice_common.threads import in_thread_if

from nodedevice_agent.lib.deviceplugin_server.values import (
    AllocationRefused,
    ContainerAllocation,
    ContainerIdentity,
    HeldDevices,
    PluginDevice,
    free_ids,
    known_ids,
)
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity, grpc_target, remove
from nodedevice_agent.lib.grpc_server import options

log = logging.getLogger(__name__)

# umask: mode 0600
_PRIVATE = 0o177
# gRPC's own default: an Allocate names device IDs
_REQUEST_BYTES = 4 * 1024 * 1024
# devices of a list; of a longer one the message is made in a thread, two microseconds each
_MOST_IN_LOOP = 4096
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"
_serial = itertools.count(1)

Context = grpc.aio.ServicerContext[Any, Any]
Devices = tuple[PluginDevice, ...]
# reason and message
Trouble = tuple[str, str]
NO_TROUBLE: Trouble = ("", "")


class DeviceList:
    """The latest complete list of devices, which can be watched.

    A watcher that is slower than the changes gets the newest list only; as each list replaces the one before it, nothing is lost.
    part_rules: set if the devices are interchangeable parts of physical ones.
    """

    def __init__(self, part_rules: PartRules | None = None) -> None:
        self.part_rules = part_rules
        self.latest: Devices = ()
        # the physical devices of parts: their attributes, and why no part is healthy
        self.parents: Devices = ()
        # the trouble of the whole resource: reason and message; empty if healthy
        self.trouble = NO_TROUBLE
        # devices that stay listed unchanged, but are not allocated now: the reason, by ID
        self.unconfirmed: Mapping[str, str] = {}
        self._changed = asyncio.Event()

    def publish(
        self,
        devices: Iterable[PluginDevice],
        trouble: Trouble = NO_TROUBLE,
        parents: Iterable[PluginDevice] = (),
        unconfirmed: Mapping[str, str] = MappingProxyType({}),
    ) -> bool:
        """Replace the list. Returns whether that changed it."""
        fresh = (tuple(devices), trouble, tuple(parents), unconfirmed)
        if fresh == self._state:
            return False
        self.latest, self.trouble, self.parents, self.unconfirmed = fresh
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    @property
    def _state(self) -> tuple[Devices, Trouble, Devices, Mapping[str, str]]:
        return self.latest, self.trouble, self.parents, self.unconfirmed

    def marked(self) -> Devices:
        """The latest list; a device that is not confirmed counts as healthy, and says why it is not allocated."""
        if not self.unconfirmed:
            return self.latest
        return tuple(_marked(device, self.unconfirmed.get(device.id, "")) for device in self.latest)

    async def watch(self) -> AsyncIterator[Devices]:
        """The current list, then each list that differs from the last one yielded."""
        last: tuple[Devices, Trouble, Devices, Mapping[str, str]] | None = None
        while True:
            changed = self._changed
            if self._state != last:
                last = self._state
                yield self.latest
            else:
                await changed.wait()


class DeviceSource:
    resource_name: str
    devices: DeviceList
    # whether preferred() has an opinion
    prefers: bool

    async def read(self) -> None:
        """Read the devices once and publish them, so that the first list sent is right. May raise OSError."""

    async def run(self) -> None:
        """Keep the list up to date until cancelled."""
        await asyncio.Event().wait()

    async def read_files(self) -> None:
        """Called before each allocate() whose response may depend on files of a disk; reading these may take time."""

    def allocate(self, device_ids: list[str], container: ContainerIdentity | None) -> ContainerAllocation:
        """Additions to a container with these devices. device_ids: of the latest list, sorted. Raises AllocationRefused.

        container: the one that gets the devices; None for a call from a kubelet.
        """
        raise NotImplementedError  # each plugin decides what a container gets

    def preferred(self, free: set[str], must_include: list[str], size: int) -> tuple[str, ...]:
        """Which `size` devices to allocate together: all of must_include, the others of the free ones, which are enough.

        Called only if `prefers`; by default there is no preference.
        """
        return ()


@runtime_checkable
class KeepsForContainers(Protocol):
    """A DeviceSource that keeps something for each container, such as a directory."""

    async def holdings(self, held: Sequence[HeldDevices]) -> None:
        """Receives all containers that have devices of this source, including allocations in progress.

        Data kept for other containers can be removed. Called once a device manager has connected, and when a container has ended.
        May raise OSError: it is called again.
        """


class CannotServe(Exception):
    """The plugin's socket cannot be created; the text names the path and the remedy."""


class Service(api_pb2_grpc.DevicePluginServicer):
    """A DevicePlugin service. `streams`: open ListAndWatch calls; with none, no device manager knows this plugin."""

    streams: int = 0
    # sent again with the registration
    options: api_pb2.DevicePluginOptions
    devices: DeviceList

    async def ListAndWatch(  # type: ignore[override]  # the stubs know generators alone
        self, request: api_pb2.Empty, context: Context
    ) -> None:
        """Writes each message itself: gRPC keeps a yielded message until the next one."""
        self.streams += 1
        try:
            async for devices in self.devices.watch():
                known = self.devices
                make = partial(list_to_wire, known.marked(), *known.trouble, known.part_rules, known.parents)
                await context.write(await in_thread_if(len(devices) > _MOST_IN_LOOP, make))
                del make
        finally:
            self.streams -= 1

    async def GetDevicePluginOptions(self, request: api_pb2.Empty, context: Context) -> api_pb2.DevicePluginOptions:
        return self.options


@asynccontextmanager
async def serving(service: Service, path: Path) -> AsyncIterator[FileIdentity]:
    """Serve on this path, mode 0600; afterwards remove the socket unless another process has replaced it. Raises CannotServe."""
    server = grpc.aio.server(options=options(_REQUEST_BYTES))
    api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)
    if isinstance(service, device_details_pb2_grpc.DeviceHoldingsServicer):
        device_details_pb2_grpc.add_DeviceHoldingsServicer_to_server(service, server)
    own_socket = _bind(server, path)
    await server.start()
    try:
        yield own_socket
    finally:
        if file_identity(path) == own_socket:
            remove(path)
        await server.stop(None)


def _bind(server: grpc.aio.Server, path: Path) -> FileIdentity:
    """Bind under a temporary name, then rename.

    A gRPC server removes the path that it was bound to when it stops, even if another socket is there by then: so it must never
    be bound to the path that the next server uses.
    """
    own = path.with_name(f".{os.getpid()}-{next(_serial)}")
    umask = os.umask(_PRIVATE)
    try:
        server.add_insecure_port(grpc_target(own))
    except RuntimeError as error:
        raise CannotServe(
            f"cannot create a socket in {path.parent}: {error}; does the directory exist, and is it writable?"
        ) from None
    finally:
        os.umask(umask)
    try:
        own.rename(path)
    except OSError as error:
        remove(own)
        raise CannotServe(f"cannot move the new socket to {path}: {error.strerror}") from error
    identity = file_identity(path)
    if identity is None:
        raise CannotServe(f"{path} disappeared right after it was created")
    return identity


class DevicePluginService(Service):
    """Serves one DeviceSource."""

    def __init__(self, source: DeviceSource) -> None:
        self._source = source
        self.devices = source.devices
        self.options = api_pb2.DevicePluginOptions(get_preferred_allocation_available=source.prefers)

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        if not self._source.prefers:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, f"{self._source.resource_name}: has no preference among its devices"
            )
        response = api_pb2.PreferredAllocationResponse()
        try:
            for container in request.container_requests:
                response.container_responses.add(deviceIDs=self._preferred(container))
        except AllocationRefused as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: Context) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        await self._source.read_files()
        try:
            for container in request.container_requests:
                listed = self._listed()
                device_ids = known_ids(
                    self._source.resource_name, self._listed_as(container.devices_ids, listed), listed
                )
                allocation = self._source.allocate(device_ids, _identity(container))
                response.container_responses.append(_allocation_to_wire(allocation))
        except AllocationRefused as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        log.debug("devices allocated", extra={"resource_name": self._source.resource_name})
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        return api_pb2.PreStartContainerResponse()

    def _listed(self) -> frozenset[str]:
        return frozenset(device.id for device in self._source.devices.latest)

    def _listed_as(self, device_ids: Collection[str], listed: frozenset[str]) -> list[str]:
        """The IDs in the latest list; of a device that is held by another of its IDs, that of the list."""
        if listed.issuperset(device_ids):
            return [*device_ids]
        by_alias = {alias: device.id for device in self._source.devices.latest for alias in device.aliases}
        return [i if i in listed else by_alias.get(i, i) for i in device_ids]

    def _preferred(self, container: api_pb2.ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        name, listed, size = self._source.resource_name, self._listed(), container.allocation_size
        must = known_ids(name, self._listed_as(container.must_include_deviceIDs, listed), listed)
        available = self._listed_as(container.available_deviceIDs, listed)
        return self._source.preferred(free_ids(name, listed, available, must, size), must, size)


class HoldingsService(DevicePluginService, device_details_pb2_grpc.DeviceHoldingsServicer):
    """Serves one DeviceSource that keeps something for each container."""

    def __init__(self, source: DeviceSource, keeper: KeepsForContainers) -> None:
        super().__init__(source)
        self._keeper = keeper
        details = device_details_pb2.PluginOptionsDetails(holdings_required=True)
        self.options.MergeFromString(details.SerializeToString())

    async def Sync(self, request: device_details_pb2.Holdings, context: Context) -> device_details_pb2.HoldingsSynced:
        try:
            await self._keeper.holdings([_held(holding) for holding in request.holdings])
        except OSError as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"{self._source.resource_name}: {error}")
        return device_details_pb2.HoldingsSynced()


def service_of(source: DeviceSource) -> DevicePluginService:
    return HoldingsService(source, source) if isinstance(source, KeepsForContainers) else DevicePluginService(source)


def _identity(request: api_pb2.ContainerAllocateRequest) -> ContainerIdentity | None:
    """The container of the request, if the device manager sends it."""
    try:
        found = device_details_pb2.ContainerAllocateDetails.FromString(request.SerializeToString())
    except DecodeError:
        return None
    if not found.pod_uid or not found.container:
        return None
    return ContainerIdentity(
        found.pod_namespace, found.pod_name, found.pod_uid, found.container, dict(found.annotations)
    )


def _held(holding: device_details_pb2.Holding) -> HeldDevices:
    """A response that is not one of ours has no environment."""
    try:
        env = dict(api_pb2.ContainerAllocateResponse.FromString(holding.response).envs)
    except DecodeError:
        env = {}
    return HeldDevices(holding.pod_uid, holding.container, tuple(holding.device_ids), env)


def _marked(device: PluginDevice, why: str) -> PluginDevice:
    if not why or not device.is_healthy:
        return device
    return structs.replace(device, reason=Reason.DEVICE_UNCONFIRMED, message=why)


def list_to_wire(
    devices: Iterable[PluginDevice],
    reason: str = "",
    message: str = "",
    part_rules: PartRules | None = None,
    parents: Iterable[PluginDevice] = (),
) -> api_pb2.ListAndWatchResponse:
    """reason and message: the trouble of the whole resource; v1beta1 has no field for them, see DeviceListDetails."""
    wire = api_pb2.ListAndWatchResponse(devices=[device_to_wire(device) for device in devices])
    parts = None if part_rules is None else device_details_pb2.PartRules(**structs.asdict(part_rules))
    details = DeviceListDetails(reason=reason, message=message, parents=map(_details, parents), parts=parts)
    wire.MergeFromString(details.SerializeToString(deterministic=True))
    return wire


def device_to_wire(device: PluginDevice) -> api_pb2.Device:
    wire = api_pb2.Device(ID=device.id, health=_HEALTHY if device.is_healthy else _UNHEALTHY)
    if device.numa_nodes:
        # an empty topology differs from no topology: the device manager would align to no node
        wire.topology.nodes.extend(api_pb2.NUMANode(ID=node) for node in device.numa_nodes)
    if device != PluginDevice(device.id, device.is_healthy, device.numa_nodes):
        # not fields of v1beta1: protobuf passes unknown fields on
        wire.MergeFromString(_details(device).SerializeToString(deterministic=True))
    return wire


def _details(device: PluginDevice) -> DeviceDetails:
    return DeviceDetails(
        ID=device.id,
        reason=device.reason,
        message=device.message,
        attributes=dict(device.attributes),
        parent=device.parent,
        part_size=device.part_size,
        identity=device.identity,
        files=dict(device.files),
        shared=device.is_shared,
        aliases=device.aliases,
    )


def _allocation_to_wire(allocation: ContainerAllocation) -> api_pb2.ContainerAllocateResponse:
    return api_pb2.ContainerAllocateResponse(
        envs=allocation.env,
        annotations=allocation.annotations,
        mounts=[api_pb2.Mount(**structs.asdict(mount)) for mount in allocation.mounts],
        devices=[api_pb2.DeviceSpec(**structs.asdict(node)) for node in allocation.device_nodes],
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in allocation.cdi_devices],
    )
