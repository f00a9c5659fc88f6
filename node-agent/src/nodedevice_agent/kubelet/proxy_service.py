"""`--delivery kubelet`: forwards the kubelet's calls to the device plugin of a resource. Source: kubelet deviceplugin v1beta1."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from nodedevice_api.device_ids import original_id, shown_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.selection import Selection
from nodedevice_agent.devicemanager.attribution.attribute import is_elsewhere
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kubelet.advertised import select_preferred
from nodedevice_agent.lib.deviceplugin_server.server import DeviceList, Service
from nodedevice_agent.nri.host_devices import HostDeviceStat

log = logging.getLogger(__name__)

# limit for reading device files of a response: their file system may hang
_READ_SECONDS = 2.0

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(eq=False)
class ProxyService(Service):
    """Runs in the event loop of manager and host.

    Passes on the plugin's response to Allocate unchanged. Sorts device IDs first, because the kubelet's maps have no order. The
    kubelet keeps a response until its pod is deleted, so each container start checks that it is still valid.
    """

    resource_name: str
    devices: DeviceList
    options: api_pb2.DevicePluginOptions
    manager: DeviceManager
    host: PluginHost
    host_devices: HostDeviceStat

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context
    ) -> api_pb2.PreferredAllocationResponse:
        """Never fails, because an error would fail the pod: ignores an invalid response of the plugin."""
        response = api_pb2.PreferredAllocationResponse()
        for wanted in request.container_requests:
            resource = self.manager.resources[self.resource_name]
            selection = select_preferred(
                resource,
                self.manager.topology,
                map(shown_id, wanted.available_deviceIDs),
                map(shown_id, wanted.must_include_deviceIDs),
                wanted.allocation_size,
            )
            is_asked = selection.missing > 0 and resource.newest.options.get_preferred_allocation_available
            chosen = selection.completed(await self._preferred(selection) if is_asked else ())
            response.container_responses.add(deviceIDs=map(original_id, chosen))
        return response

    async def Allocate(self, request: api_pb2.AllocateRequest, context: _Context) -> api_pb2.AllocateResponse:
        response = api_pb2.AllocateResponse()
        for wanted in request.container_requests:
            device_ids = tuple(sorted(map(shown_id, wanted.devices_ids)))
            try:
                with metrics.ALLOCATE_SECONDS.labels(self.resource_name).time():
                    connection = self.host.newest(self.resource_name, "Allocate")
                    self._refuse_taken(device_ids)
                    answer = await connection.allocate(self._plugin_ids(device_ids))
                    await self._refuse_files_of_others(answer)
            except PluginFailed as exc:
                metrics.ALLOCATE_FAILED.labels(self.resource_name).inc()
                log.error("Allocate failed; the kubelet rejects the pod", extra=self._failed(exc))
                await _abort(context, exc)
            self.manager.attribution.answered(self.resource_name, device_ids, answer)
            response.container_responses.add().ParseFromString(answer.octets)
            extra = {"resource_name": self.resource_name, "device_ids": [*map(shown_id, wanted.devices_ids[:16])]}
            log.info("devices allocated by the kubelet", extra=extra)
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse:
        device_ids = tuple(sorted(map(shown_id, request.devices_ids)))
        try:
            connection = self.host.newest(self.resource_name, "PreStartContainer")
            if outdated := self.manager.attribution.start_problem(self.resource_name, device_ids, with_edits_of):
                raise PluginFailed(self.resource_name, "PreStartContainer", outdated)
            if connection.options.pre_start_required:
                with metrics.PRE_START_SECONDS.labels(self.resource_name).time():
                    await connection.pre_start(self._plugin_ids(device_ids))
        except PluginFailed as exc:
            metrics.PRE_START_FAILED.labels(self.resource_name).inc()
            log.error("PreStartContainer failed; the kubelet retries", extra=self._failed(exc))
            await _abort(context, exc)
        return api_pb2.PreStartContainerResponse()

    def _plugin_ids(self, device_ids: Iterable[str]) -> tuple[str, ...]:
        return self.manager.resources[self.resource_name].plugin_ids(device_ids)

    def _refuse_taken(self, device_ids: Iterable[str]) -> None:
        """Refuse a device that is in use under another resource name, or in a container that did not get it from the kubelet. The
        kubelet may not know either yet. Raises PluginFailed.
        """
        held_back = self.manager.resources[self.resource_name].use.held_back
        others = (a for a in self.manager.book if a.resource_name == self.resource_name and is_elsewhere(a))
        delivery = {device_id: a.delivery for a in others for device_id in a.device_ids}
        for device_id in device_ids:
            if device_id in delivery:
                why = f"{device_id} is in use: another pod got it by the delivery {delivery[device_id]}"
                raise PluginFailed(self.resource_name, "Allocate", why)
            if device_id in held_back:
                other = held_back[device_id]
                why = f"{device_id} is the same device as {other.device_id} of {other.resource_name}, and is {other.use} there"
                raise PluginFailed(self.resource_name, "Allocate", why)

    async def _refuse_files_of_others(self, answer: AllocateResponse) -> None:
        """Refuse an external plugin's response with a device file that another pod holds. Raises PluginFailed."""
        if self.manager.resources[self.resource_name].presence.is_built_in or not answer.edits.devices:
            return
        try:
            async with asyncio.timeout(_READ_SECONDS):
                found = await self.host_devices.stat_devices(device.host_path for device in answer.edits.devices)
        except (InjectionRefused, TimeoutError):
            # the runtime reads the files as well and reports the error
            return
        numbers = {f"{d.type}{d.major}:{d.minor}" for devices in found.values() for d in devices}
        other = self.manager.other_holders.of("", numbers)
        if other is not None:
            why = f"it allocates the device file of {other.device_id} of {other.resource_name}, which another pod holds"
            raise PluginFailed(self.resource_name, "Allocate", why)

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
    """Abort with the error's text, which the kubelet copies into the pod's Event."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
