"""`--delivery kubelet`: registers each resource with the kubelet, which allocates. Source: kubelet deviceplugin v1beta1."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.pacing import Backoff
from nodedevice_common.tasks import apart, retried
from nodedevice_common.threads import in_thread_if

from nodedevice_agent.delivery.contract import Delivery
from nodedevice_agent.devicemanager.attribution.attribute import is_elsewhere
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.advertised import (
    Advertised,
    KubeletRegistration,
    KubeletRegistrationState,
    advertised,
    injectable,
)
from nodedevice_agent.kubelet.attribution_feed import AttributionFeed
from nodedevice_agent.kubelet.proxy_service import ProxyService
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib.deviceplugin_server import registered_socket
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceList, list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.vital import vital
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.plugins.settings import kubelet_note

log = logging.getLogger(__name__)

# The kubelet ends the stream of a plugin with a longer list and ignores its devices.
MAX_LIST_BYTES = 4 * 1024 * 1024
# longer lists are prepared in a thread: two microseconds for each device
_MOST_IN_LOOP = 4096

_STATES = {
    registered_socket.RegistrationState.REGISTERED: KubeletRegistrationState.REGISTERED,
    registered_socket.RegistrationState.NO_MANAGER: KubeletRegistrationState.UNREACHABLE,
    registered_socket.RegistrationState.NO_DIRECTORY: KubeletRegistrationState.UNREACHABLE,
    registered_socket.RegistrationState.REFUSED: KubeletRegistrationState.REFUSED,
    registered_socket.RegistrationState.TAKEN: KubeletRegistrationState.CANNOT_SERVE,
}


def endpoint_name(resource_name: str) -> str:
    """Return the file name of a resource's socket: at most 41 characters, unique among plugins."""
    return f"nodedevice-{socket_name(resource_name)}"


class KubeletBackend(Delivery):
    """on_condition: called with each resource whose condition Injectable may have changed.

    grace_seconds: how long a restarting kubelet is not reported as unreachable.
    """

    def __init__(
        self,
        host: PluginHost,
        reader: KubeletReader,
        on_condition: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self.manager = host.manager
        self.host = host
        self.directory = reader.directory
        self.on_condition = on_condition
        self.grace_seconds = grace_seconds
        self.watcher = FileWatcher()
        self.host_devices = HostDeviceStat()
        self._reader = reader
        self._feed = AttributionFeed(reader.directory, host, self._trouble_changed)
        reader.subscribe(self._feed)
        self._endpoints: dict[str, KubeletEndpoint] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Read the kubelet's state once, then serve in tasks of the group."""
        self._tasks = tasks
        watching = asyncio.Event()
        tasks.create_task(vital("files of the kubelet", partial(self._watch, watching)))
        await watching.wait()
        with apart("kubelet state"):
            await self._reader.read()
        log.info("following the kubelet's allocations", extra={"path": str(self.directory.path)})

    def resource_changed(self, resource_name: str) -> None:
        endpoint = self._endpoints.get(resource_name)
        if endpoint is None:
            endpoint = self._endpoints[resource_name] = KubeletEndpoint(self, resource_name)
            run = retried("kubelet endpoint", endpoint.run, resource_name=resource_name)
            self._serving[resource_name] = self._tasks.create_task(run)
        endpoint.resource_changed()
        if self.manager.attribution.is_outdated:
            self._reader.wake()

    def resource_forgotten(self, resource_name: str) -> None:
        """Stop advertising a resource whose device plugin is gone."""
        if self._endpoints.pop(resource_name, None) is not None:
            self._serving.pop(resource_name).cancel()

    def injectable(self, now: Snapshot) -> tuple[str, str, str]:
        endpoint = self._endpoints.get(now.resource_name)
        resource = self.manager.resources.get(now.resource_name)
        return injectable(
            endpoint.registration if endpoint else KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED),
            kubelet_note(resource.presence.scope) if resource is not None else "",
        )

    @property
    def notes(self) -> str:
        """Why the kubelet's checkpoint cannot be used; "" if it can."""
        if not self._feed.trouble:
            return ""
        return (
            f"the kubelet's checkpoint {self.directory.checkpoint} cannot be used ({self._feed.trouble}); "
            "allocations are read from its pod resources alone, without init containers"
        )

    def _trouble_changed(self) -> None:
        for resource_name in self.manager.resources:
            self.on_condition(resource_name)

    async def _watch(self, watching: asyncio.Event) -> None:
        with self.watcher:
            watching.set()
            await asyncio.Event().wait()


class KubeletEndpoint:
    """Serves one resource to the kubelet as a device plugin, registered while the resource is advertised."""

    def __init__(self, backend: KubeletBackend, resource_name: str) -> None:
        self._backend = backend
        self._resource_name = resource_name
        self._grace: asyncio.TimerHandle | None = None
        self.devices = DeviceList()
        self._advertised: Advertised | None = None
        self._is_due = asyncio.Event()
        # also False if the list is too big
        self._is_advertised = False
        self._options = api_pb2.DevicePluginOptions()
        self._changed = asyncio.Event()
        self.registration = KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED)

    def resource_changed(self) -> None:
        """Schedule advertising or withdrawing the resource."""
        self._is_due.set()

    async def keep_advertised(self) -> None:
        """Advertise after each change until cancelled. Long lists are made in a thread, again after a change in between."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            resource = self._backend.manager.resources.get(self._resource_name)
            if resource is not None:
                is_long = len(resource.devices) > _MOST_IN_LOOP
                held = (a for a in self._backend.manager.book if a.resource_name == resource.name and is_elsewhere(a))
                elsewhere = frozenset(i for a in held for i in a.device_ids)
                found = await in_thread_if(is_long, partial(_offer, resource, self._advertised, elsewhere))
                if found is not None:
                    self._advertise(*found)

    def _advertise(self, advertised: Advertised | None, size: int) -> None:
        """Advertise these devices; None withdraws the resource. size: bytes of the list."""
        self._advertised = advertised
        self._is_advertised = advertised is not None and size <= MAX_LIST_BYTES
        if advertised is None:
            self._set_state(KubeletRegistrationState.NOT_ADVERTISED)
        elif size > MAX_LIST_BYTES:
            detail = f"{len(advertised.devices)} devices make a list of {size} bytes"
            self._set_state(KubeletRegistrationState.LIST_TOO_BIG, detail)
        else:
            self.devices.publish(advertised.devices)
        if advertised is not None and advertised.options is not None:
            self._options = api_pb2.DevicePluginOptions(
                # each container start checks the stored response of a built-in plugin
                pre_start_required=advertised.options.pre_start_required or bool(advertised.options.scope),
                # even if the plugin has no preference: preferred devices respect cordons and NUMA nodes
                get_preferred_allocation_available=True,
            )
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._is_due.set()
            tasks.create_task(self.keep_advertised())
            await self._keep_served()

    async def _keep_served(self) -> None:
        pauses = Backoff(1.0, registered_socket.RESCAN_SECONDS)
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
        """Serve until the resource is withdrawn or its options change: only a registration sends options."""
        options, backend = self._options, self._backend
        socket = registered_socket.RegisteredSocket(
            self._resource_name,
            endpoint_name(self._resource_name),
            backend.directory.device_plugins,
            backend.watcher,
            make_service=partial(
                ProxyService,
                self._resource_name,
                self.devices,
                options,
                backend.manager,
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

    def _reported(self, state: registered_socket.RegistrationState, detail: str) -> None:
        # a withdrawn resource keeps the state that _advertise() has set
        if self._is_advertised:
            self._set_state(_STATES[state], detail)

    def _set_state(self, state: KubeletRegistrationState, detail: str = "") -> None:
        """Set the state; a registered resource becomes unreachable only after the grace period."""
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


def _offer(
    resource: Resource, before: Advertised | None, elsewhere: frozenset[str]
) -> tuple[Advertised | None, int] | None:
    """Return what to advertise and its size in bytes; None if nothing has changed."""
    found = advertised(resource, elsewhere)
    if found == before:
        return None
    return found, list_to_wire(found.devices if found is not None else ()).ByteSize()
