"""The DevicePlugin service that the kubelet sees of one resource: its calls are passed on to the device plugin that is registered
here, its list is what the device manager makes of that plugin's.

What a plugin answers to Allocate is handed over as it came. Device IDs are passed on in order, which the kubelet's maps have not.
Every call has a deadline, which the kubelet's own have not.
Source: kubelet deviceplugin v1beta1.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.selection import Selection
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kubelet.advertised import Offer, advice
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, Service, device_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

log = logging.getLogger(__name__)

# The kubelet ends the stream of a plugin that lists more, and counts none of its devices.
MAX_LIST_BYTES = 4 * 1024 * 1024

_Context = grpc.aio.ServicerContext[Any, Any]


def shown(offer: Offer) -> tuple[PluginDevice, ...]:
    """The list that the kubelet gets."""
    return tuple(PluginDevice(device.id, device.healthy, device.numa_nodes) for device in offer.devices)


def list_message(devices: tuple[PluginDevice, ...]) -> api_pb2.ListAndWatchResponse:
    return api_pb2.ListAndWatchResponse(devices=map(device_to_wire, devices))


class PassedOn(Service):
    """Serves one resource. Mirror and host belong to the event loop that this is called in."""

    def __init__(
        self,
        resource_name: str,
        devices: DeviceList,
        options: api_pb2.DevicePluginOptions,
        mirror: Mirror,
        host: PluginHost,
    ) -> None:
        self._resource_name = resource_name
        self._devices = devices
        self.options = options
        self._mirror = mirror
        self._host = host
        self.streams = 0

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: _Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.streams += 1
        try:
            async for devices in self._devices.watch():
                yield list_message(devices)
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context
    ) -> api_pb2.PreferredAllocationResponse:
        """Never an error, as that would fail the pod: a plugin without good advice is done without."""
        response = api_pb2.PreferredAllocationResponse()
        for asked in request.container_requests:
            resource = self._mirror.resources[self._resource_name]
            best = advice(
                resource,
                self._mirror.topology,
                asked.available_deviceIDs,
                asked.must_include_deviceIDs,
                asked.allocation_size,
            )
            asks = best.missing > 0 and resource.options.get_preferred_allocation_available
            response.container_responses.add(deviceIDs=best.completed(await self._advice(best) if asks else ()))
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: _Context) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        for asked in request.container_requests:
            try:
                with metrics.ALLOCATE_SECONDS.labels(self._resource_name).time():
                    connection = self._host.newest(self._resource_name, "Allocate")
                    answer = await connection.allocate(tuple(sorted(asked.devices_ids)))
            except PluginFailed as exc:
                metrics.ALLOCATE_FAILED.labels(self._resource_name).inc()
                log.error("allocation failed; the kubelet fails its pod", extra={"error": str(exc)})
                await _refuse(context, exc)
            response.container_responses.add().ParseFromString(answer.octets)
            extra = {"resource_name": self._resource_name, "device_ids": list(asked.devices_ids)[:16]}
            log.info("allocated for the kubelet", extra=extra)
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse:
        try:
            connection = self._host.newest(self._resource_name, "PreStartContainer")
            with metrics.PRE_START_SECONDS.labels(self._resource_name).time():
                await connection.pre_start(tuple(sorted(request.devices_ids)))
        except PluginFailed as exc:
            metrics.PRE_START_FAILED.labels(self._resource_name).inc()
            log.error("devices are not prepared; the kubelet tries again", extra={"error": str(exc)})
            await _refuse(context, exc)
        return api_pb2.PreStartContainerResponse()

    async def _advice(self, best: Selection) -> tuple[str, ...]:
        try:
            connection = self._host.newest(self._resource_name, "GetPreferredAllocation")
            return await connection.preferred(best.candidates(), best.taken, best.count)
        except PluginFailed as exc:
            log.warning("advice ignored", extra={"resource_name": self._resource_name, "error": str(exc)})
            return ()


async def _refuse(context: _Context, error: PluginFailed) -> NoReturn:
    """The kubelet shows the text in the pod's Event."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
