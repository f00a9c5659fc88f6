"""The DevicePlugin service of one resource: wire messages in and out, decisions left to its source.

Source: kubelet deviceplugin v1beta1.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent.lib.deviceplugin_server.server import Service
from nodedevice_agent.lib.deviceplugin_server.source import DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, PluginDevice

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
