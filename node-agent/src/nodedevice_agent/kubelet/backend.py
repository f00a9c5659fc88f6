"""`--runtime kubelet`: the kubelet allocates; each resource is registered with it, and allocations are read back from it.

The device manager is a Mirror, and the kubelet maintains the Node's capacity. Resources of plugins that register with the
kubelet directly are not handled here.
Source: kubelet deviceplugin v1beta1.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.pacing import Backoff
from nodedevice_common.tasks import apart, retried
from nodedevice_common.threads import in_thread_if

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.selection import Selection
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kubelet.advertised import (
    Advertised,
    KubeletRegistration,
    KubeletRegistrationState,
    advertised,
    injectable,
    select_preferred,
)
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.mirror_feed import MirrorFeed
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib.deviceplugin_server.registered_socket import (
    RESCAN_SECONDS,
    RegisteredSocket,
    RegistrationState,
)
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceList, Service, list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.vital import vital
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.plugins.settings import GPU_SCOPE

log = logging.getLogger(__name__)

# The kubelet ends the stream of a plugin that lists more, and counts none of its devices.
MAX_LIST_BYTES = 4 * 1024 * 1024
# of a longer list, what is advertised is found out in a thread: two microseconds each
_MOST_IN_LOOP = 4096
# of the device files in an answer, which may be on a file system that hangs
_READ_SECONDS = 2.0

_Context = grpc.aio.ServicerContext[Any, Any]

_STATES = {
    RegistrationState.REGISTERED: KubeletRegistrationState.REGISTERED,
    RegistrationState.NO_MANAGER: KubeletRegistrationState.UNREACHABLE,
    RegistrationState.NO_DIRECTORY: KubeletRegistrationState.UNREACHABLE,
    RegistrationState.REFUSED: KubeletRegistrationState.REFUSED,
    RegistrationState.TAKEN: KubeletRegistrationState.CANNOT_SERVE,
}


def endpoint_name(resource_name: str) -> str:
    """File name of the socket that serves a resource to the kubelet: at most 41 characters, and no other plugin has it."""
    return f"nodedevice-{socket_name(resource_name)}"


class KubeletBackend:
    """start() before plugins are served, resource_changed() for each resource that may have changed.

    on_condition: called with each resource of which the condition Injectable may have changed. grace_seconds: for how long
    a kubelet that restarts is not reported as unreachable.
    """

    is_settled = True

    def __init__(
        self,
        mirror: Mirror,
        host: PluginHost,
        reader: KubeletReader,
        on_condition: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self.mirror = mirror
        self.host = host
        self.directory = reader.directory
        self.on_condition = on_condition
        self.grace_seconds = grace_seconds
        self.watcher = FileWatcher()
        self.host_devices = HostDeviceStat()
        self._reader = reader
        self._feed = MirrorFeed(reader.directory, mirror, host, self._trouble_changed)
        reader.subscribe(self._feed)
        self._endpoints: dict[str, KubeletEndpoint] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Read the kubelet's state once; then serve in tasks of that group."""
        self._tasks = tasks
        watching = asyncio.Event()
        tasks.create_task(vital("files of the kubelet", partial(self._watch, watching)))
        await watching.wait()
        with apart("kubelet state"):
            await self._reader.read()
        log.info("mirroring the kubelet's allocations", extra={"path": str(self.directory.path)})

    def resource_changed(self, resource_name: str) -> None:
        """This resource's devices or allocations may have changed."""
        endpoint = self._endpoints.get(resource_name)
        if endpoint is None:
            endpoint = self._endpoints[resource_name] = KubeletEndpoint(self, resource_name)
            run = retried("kubelet endpoint", endpoint.run, resource_name=resource_name)
            self._serving[resource_name] = self._tasks.create_task(run)
        endpoint.resource_changed()
        if self.mirror.is_outdated:
            self._reader.wake()

    def resource_forgotten(self, resource_name: str) -> None:
        """Its device plugin is gone, so it is not advertised to the kubelet either."""
        if self._endpoints.pop(resource_name, None) is not None:
            self._serving.pop(resource_name).cancel()

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """The kubelet reports no containers."""
        return False

    def injectable(self, now: Snapshot) -> tuple[str, str, str]:
        """Status, reason and message of the condition Injectable."""
        endpoint = self._endpoints.get(now.resource_name)
        resource = self.mirror.resources.get(now.resource_name)
        return injectable(
            endpoint.registration if endpoint else KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED),
            are_gpus=resource is not None and resource.scope == GPU_SCOPE,
        )

    @property
    def notes(self) -> str:
        """Why the kubelet's checkpoint cannot be used; "" while it can."""
        if not self._feed.trouble:
            return ""
        return (
            f"the kubelet's checkpoint {self.directory.checkpoint} cannot be used ({self._feed.trouble}); "
            "allocations are read from its pod resources alone, without init containers"
        )

    def _trouble_changed(self) -> None:
        for resource_name in self.mirror.resources:
            self.on_condition(resource_name)

    async def _watch(self, watching: asyncio.Event) -> None:
        with self.watcher:
            watching.set()
            await asyncio.Event().wait()


class KubeletEndpoint:
    """Serves one resource to the kubelet as a device plugin, registered while the resource is advertised.

    run() until cancelled; resource_changed() whenever that may be so.
    """

    def __init__(self, backend: KubeletBackend, resource_name: str) -> None:
        self._backend = backend
        self._resource_name = resource_name
        self._grace: asyncio.TimerHandle | None = None
        self.devices = DeviceList()
        self._advertised: Advertised | None = None
        self._is_due = asyncio.Event()
        # False also for a list that is too big
        self._is_advertised = False
        self._options = api_pb2.DevicePluginOptions()
        self._changed = asyncio.Event()
        self.registration = KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED)

    def resource_changed(self) -> None:
        """Advertise what it is now, or withdraw it; soon."""
        self._is_due.set()

    async def keep_advertised(self) -> None:
        """For ever; a long list is made in a thread, and once more where the resource has changed meanwhile."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            resource = self._backend.mirror.resources.get(self._resource_name)
            if resource is not None:
                is_long = len(resource.devices) > _MOST_IN_LOOP
                found = await in_thread_if(is_long, partial(_offer, resource, self._advertised))
                if found is not None:
                    self._advertise(*found)

    def _advertise(self, advertised: Advertised | None, size: int) -> None:
        """Advertise this from now on; None: withdraw the resource. size: of the list, in bytes."""
        self._advertised = advertised
        self._is_advertised = advertised is not None and self._publish(advertised, size)
        if advertised is None:
            self._set_state(KubeletRegistrationState.NOT_ADVERTISED)
        elif advertised.options is not None:
            self._options = api_pb2.DevicePluginOptions(
                # the stored response of a built-in plugin is checked at each start
                pre_start_required=advertised.options.pre_start_required or bool(advertised.options.scope),
                # also without the plugin's: preferred devices respect cordons and NUMA nodes
                get_preferred_allocation_available=True,
            )
        self._changed.set()

    def _publish(self, advertised: Advertised, size: int) -> bool:
        """Returns False for a list that the kubelet would not accept."""
        if size > MAX_LIST_BYTES:
            detail = f"{len(advertised.devices)} devices make a list of {size} bytes"
            self._set_state(KubeletRegistrationState.LIST_TOO_BIG, detail)
            return False
        self.devices.publish(advertised.devices)
        return True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._is_due.set()
            tasks.create_task(self.keep_advertised())
            await self._keep_served()

    async def _keep_served(self) -> None:
        pauses = Backoff(1.0, RESCAN_SECONDS)
        while True:
            await self._until(lambda: self._is_advertised)
            try:
                await self._serve()
                pauses.reset()
            except (CannotServe, OSError) as exc:
                extra = {"resource_name": self._resource_name, "error": str(exc)}
                log.error("cannot serve the resource to the kubelet; retrying", extra=extra)
                self._set_state(KubeletRegistrationState.CANNOT_SERVE, str(exc))
                await asyncio.sleep(pauses.next())

    async def _serve(self) -> None:
        """Returns when the resource is withdrawn, or its options have changed: options are sent with a registration only."""
        options, backend = self._options, self._backend
        socket = RegisteredSocket(
            self._resource_name,
            endpoint_name(self._resource_name),
            backend.directory.device_plugins,
            backend.watcher,
            make_service=partial(
                ProxyService,
                self._resource_name,
                self.devices,
                options,
                backend.mirror,
                backend.host,
                backend.host_devices,
            ),
            report=self._reported,
        )
        serving = asyncio.create_task(socket.run())
        over = asyncio.create_task(self._until(lambda: not self._is_advertised or self._options != options))
        try:
            await asyncio.wait((serving, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            serving.cancel()
            ended = await asyncio.gather(serving, over, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _reported(self, state: RegistrationState, detail: str) -> None:
        # a resource that is no longer advertised keeps the state that advertise() has set
        if self._is_advertised:
            self._set_state(_STATES[state], detail)

    def _set_state(self, state: KubeletRegistrationState, detail: str = "") -> None:
        """A registered resource becomes unreachable only when the grace period has passed."""
        found = KubeletRegistration(state, detail)
        was_registered = self.registration.state is KubeletRegistrationState.REGISTERED
        if state is KubeletRegistrationState.UNREACHABLE and was_registered:
            if self._grace is None:
                loop = asyncio.get_running_loop()
                self._grace = loop.call_later(self._backend.grace_seconds, self._set_registration, found)
            return
        self._set_registration(found)

    def _set_registration(self, registration: KubeletRegistration) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if registration != self.registration:
            self.registration = registration
            self._backend.on_condition(self._resource_name)


@dataclass(eq=False)
class ProxyService(Service):
    """The DevicePlugin service of one resource for the kubelet, in the event loop of mirror and host.

    Calls are proxied to the device plugin that is registered here, and the device list comes from the device manager. The plugin's
    response to Allocate is passed on unchanged. Device IDs are sorted first: the kubelet's maps have no order. Every call has a
    deadline: the kubelet's own have none. The kubelet keeps a response for as long as its pod is there, so before each start of a
    container it is checked whether that of a built-in plugin is still right.
    """

    resource_name: str
    devices: DeviceList
    options: api_pb2.DevicePluginOptions
    mirror: Mirror
    host: PluginHost
    host_devices: HostDeviceStat

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
                    self._refuse_taken(wanted.devices_ids)
                    answer = await connection.allocate(tuple(sorted(wanted.devices_ids)))
                    await self._refuse_files_of_others(answer)
            except PluginFailed as exc:
                metrics.ALLOCATE_FAILED.labels(self.resource_name).inc()
                log.error("Allocate failed; the kubelet rejects the pod", extra=self._failed(exc))
                await _abort(context, exc)
            self.mirror.answered(self.resource_name, wanted.devices_ids, answer)
            response.container_responses.add().ParseFromString(answer.octets)
            extra = {"resource_name": self.resource_name, "device_ids": list(wanted.devices_ids)[:16]}
            log.info("devices allocated by the kubelet", extra=extra)
        return response

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse:
        try:
            connection = self.host.newest(self.resource_name, "PreStartContainer")
            if outdated := self.mirror.start_problem(self.resource_name, request.devices_ids, with_edits_of):
                raise PluginFailed(self.resource_name, "PreStartContainer", outdated)
            if connection.options.pre_start_required:
                with metrics.PRE_START_SECONDS.labels(self.resource_name).time():
                    await connection.pre_start(tuple(sorted(request.devices_ids)))
        except PluginFailed as exc:
            metrics.PRE_START_FAILED.labels(self.resource_name).inc()
            log.error("PreStartContainer failed; the kubelet retries", extra=self._failed(exc))
            await _abort(context, exc)
        return api_pb2.PreStartContainerResponse()

    def _refuse_taken(self, device_ids: Iterable[str]) -> None:
        """The kubelet may have chosen before it has read that a device is another one that is held. Raises PluginFailed."""
        held_back = self.mirror.resources[self.resource_name].held_back
        for device_id in device_ids:
            if device_id in held_back:
                other = held_back[device_id]
                why = f"{device_id} is the same device as {other.device_id} of {other.resource_name}, and is {other.use} there"
                raise PluginFailed(self.resource_name, "Allocate", why)

    async def _refuse_files_of_others(self, answer: AllocateResponse) -> None:
        """A plugin of somebody else may give out the file of a built-in plugin's device. Raises PluginFailed."""
        if self.mirror.resources[self.resource_name].is_built_in or not answer.edits.devices:
            return
        try:
            async with asyncio.timeout(_READ_SECONDS):
                found = await self.host_devices.stat_devices(device.host_path for device in answer.edits.devices)
        except (InjectionRefused, TimeoutError):
            # the runtime reads them, too, and reports what is wrong
            return
        numbers = {f"{d.type}{d.major}:{d.minor}" for devices in found.values() for d in devices}
        other = self.mirror.other_holders.of("", numbers)
        if other is not None:
            why = f"it gives out the device file of {other.device_id} of {other.resource_name}, which another pod holds"
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


def _offer(resource: Resource, before: Advertised | None) -> tuple[Advertised | None, int] | None:
    """What to advertise, and how many bytes that takes; None where it is the same as before."""
    found = advertised(resource)
    if found == before:
        return None
    return found, list_to_wire(found.devices).ByteSize() if found is not None else 0


async def _abort(context: _Context, error: PluginFailed) -> NoReturn:
    """The kubelet copies the text into the pod's Event."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
