"""Serves one resource to the kubelet as a device plugin, registered while the resource is advertised."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.pacing import Backoff

from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.advertised import Advertised
from nodedevice_agent.kubelet.condition import KubeletRegistration, KubeletRegistrationState
from nodedevice_agent.kubelet.directory import KubeletDirectory, endpoint_name
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.proxy_service import MAX_LIST_BYTES, ProxyService, list_message, plugin_devices
from nodedevice_agent.lib.deviceplugin_server.registered_socket import Pace, RegisteredSocket, RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceList
from nodedevice_agent.lib.file_watcher import FileWatcher

log = logging.getLogger(__name__)

_STATES = {
    RegistrationState.REGISTERED: KubeletRegistrationState.REGISTERED,
    RegistrationState.NO_MANAGER: KubeletRegistrationState.UNREACHABLE,
    RegistrationState.NO_DIRECTORY: KubeletRegistrationState.UNREACHABLE,
    RegistrationState.REFUSED: KubeletRegistrationState.REFUSED,
    RegistrationState.TAKEN: KubeletRegistrationState.CANNOT_SERVE,
}


class KubeletEndpoint:
    """run() until cancelled; advertise() whenever the resource may have changed.

    on_condition: called when the registration's state has changed. grace_seconds: for how long a kubelet that restarts is
    not reported as unreachable.
    """

    def __init__(
        self,
        resource_name: str,
        directory: KubeletDirectory,
        mirror: Mirror,
        host: PluginHost,
        watcher: FileWatcher,
        on_condition: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self._resource_name = resource_name
        self._directory = directory
        self._mirror, self._host = mirror, host
        self._watcher = watcher
        self._on_condition = on_condition
        self._grace_seconds = grace_seconds
        self._grace: asyncio.TimerHandle | None = None
        self._pace = Pace()
        self._devices = DeviceList()
        self._advertised: Advertised | None = None
        # False also for a list that is too big
        self._is_advertised = False
        self._options = api_pb2.DevicePluginOptions()
        self._changed = asyncio.Event()
        self.registration = KubeletRegistration(KubeletRegistrationState.NOT_ADVERTISED)

    def advertise(self, advertised: Advertised | None) -> None:
        """Advertise this from now on; None: withdraw the resource."""
        if advertised == self._advertised:
            return
        self._advertised = advertised
        self._is_advertised = advertised is not None and self._publish(advertised)
        if advertised is None:
            self._set_state(KubeletRegistrationState.NOT_ADVERTISED)
        elif advertised.options is not None:
            self._options = api_pb2.DevicePluginOptions(
                pre_start_required=advertised.options.pre_start_required,
                # also without the plugin's: preferred devices respect cordons and NUMA nodes
                get_preferred_allocation_available=True,
            )
        self._changed.set()

    def _publish(self, advertised: Advertised) -> bool:
        """Returns False for a list that the kubelet would not accept."""
        devices = plugin_devices(advertised)
        size = list_message(devices).ByteSize()
        if size > MAX_LIST_BYTES:
            self._set_state(
                KubeletRegistrationState.LIST_TOO_BIG, f"{len(devices)} devices make a list of {size} bytes"
            )
            return False
        self._devices.publish(devices)
        return True

    async def run(self) -> None:
        pauses = Backoff(1.0, self._pace.rescan_seconds)
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
        options = self._options
        socket = RegisteredSocket(
            self._resource_name,
            endpoint_name(self._resource_name),
            self._directory.device_plugins,
            self._watcher,
            self._pace,
            make_service=partial(ProxyService, self._resource_name, self._devices, options, self._mirror, self._host),
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
        if (
            state is KubeletRegistrationState.UNREACHABLE
            and self.registration.state is KubeletRegistrationState.REGISTERED
        ):
            if self._grace is None:
                loop = asyncio.get_running_loop()
                self._grace = loop.call_later(self._grace_seconds, self._set_registration, found)
            return
        self._set_registration(found)

    def _set_registration(self, registration: KubeletRegistration) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if registration != self.registration:
            self.registration = registration
            self._on_condition(self._resource_name)
