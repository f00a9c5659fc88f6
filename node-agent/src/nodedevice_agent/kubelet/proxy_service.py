"""The DevicePlugin service of one resource for the kubelet: calls are proxied to the device plugin that is registered here, and
the device list comes from the device manager.

The plugin's response to Allocate is passed on unchanged. Device IDs are sorted first: the kubelet's maps have no order. Every call
has a deadline: the kubelet's own have none.
Source: kubelet deviceplugin v1beta1.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.selection import Selection
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kubelet.advertised import select_preferred
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, Service, device_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

log = logging.getLogger(__name__)

# The kubelet ends the stream of a plugin that lists more, and counts none of its devices.
MAX_LIST_BYTES = 4 * 1024 * 1024

_Context = grpc.aio.ServicerContext[Any, Any]


def list_message(devices: tuple[PluginDevice, ...]) -> api_pb2.ListAndWatchResponse:
    return api_pb2.ListAndWatchResponse(devices=map(device_to_wire, devices))


@dataclass(eq=False)
class ProxyService(Service):
    """Serves one resource, in the event loop of mirror and host."""

    resource_name: str
    devices: DeviceList
    options: api_pb2.DevicePluginOptions
    mirror: Mirror
    host: PluginHost
    streams: int = 0

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: _Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.streams += 1
        try:
            async for devices in self.devices.watch():
                yield list_message(devices)
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context
    ) -> api_pb2.PreferredAllocationResponse:
        """Never an error, because that would fail the pod: an invalid response of the plugin is ignored."""
        response = api_pb2.PreferredAllocationResponse()
        for wanted in request.container_requests:
            resource = self.mirror.resources[self.resource_name]
            selection = select_preferred(
                resource,
                self.mirror.topology,
                wanted.available_deviceIDs,
                wanted.must_include_deviceIDs,
                wanted.allocation_size,
            )
            is_asked = selection.missing > 0 and resource.options.get_preferred_allocation_available
            response.container_responses.add(
                deviceIDs=selection.completed(await self._preferred(selection) if is_asked else ())
            )
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: _Context) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        for wanted in request.container_requests:
            try:
                with metrics.ALLOCATE_SECONDS.labels(self.resource_name).time():
                    connection = self.host.newest(self.resource_name, "Allocate")
                    answer = await connection.allocate(tuple(sorted(wanted.devices_ids)))
            except PluginFailed as exc:
                metrics.ALLOCATE_FAILED.labels(self.resource_name).inc()
                log.error("Allocate failed; the kubelet rejects the pod", extra=self._failed(exc))
                await _abort(context, exc)
            response.container_responses.add().ParseFromString(answer.octets)
            extra = {"resource_name": self.resource_name, "device_ids": list(wanted.devices_ids)[:16]}
            log.info("devices allocated by the kubelet", extra=extra)
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse:
        try:
            connection = self.host.newest(self.resource_name, "PreStartContainer")
            with metrics.PRE_START_SECONDS.labels(self.resource_name).time():
                await connection.pre_start(tuple(sorted(request.devices_ids)))
        except PluginFailed as exc:
            metrics.PRE_START_FAILED.labels(self.resource_name).inc()
            log.error("PreStartContainer failed; the kubelet retries", extra=self._failed(exc))
            await _abort(context, exc)
        return api_pb2.PreStartContainerResponse()

    async def _preferred(self, selection: Selection) -> tuple[str, ...]:
        try:
            connection = self.host.newest(self.resource_name, "GetPreferredAllocation")
            return await connection.preferred(selection.candidates(), selection.taken, selection.count)
        except PluginFailed as exc:
            log.warning("GetPreferredAllocation failed; ignoring it", extra=self._failed(exc))
            return ()

    def _failed(self, error: PluginFailed) -> dict[str, str]:
        return {"resource_name": self.resource_name, "error": str(error)}


async def _abort(context: _Context, error: PluginFailed) -> NoReturn:
    """The kubelet copies the text into the pod's Event."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
