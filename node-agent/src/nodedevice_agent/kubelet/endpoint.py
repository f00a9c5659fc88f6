"""One resource as the kubelet's device plugin: served and registered for as long as there is anything to show of it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.backoff import Backoff

from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.advertised import Offer
from nodedevice_agent.kubelet.condition import KubeletStanding, Stand
from nodedevice_agent.kubelet.directory import KubeletDirectory, endpoint_name
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.proxy_service import MAX_LIST_BYTES, PassedOn, list_message, shown
from nodedevice_agent.lib.deviceplugin_server.registered_socket import Pace, RegisteredSocket, RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceList
from nodedevice_agent.lib.file_watcher import FileWatcher

log = logging.getLogger(__name__)

_STANDS = {
    RegistrationState.REGISTERED: Stand.REGISTERED,
    RegistrationState.NO_MANAGER: Stand.AWAY,
    RegistrationState.NO_DIRECTORY: Stand.AWAY,
    RegistrationState.REFUSED: Stand.REFUSED,
    RegistrationState.TAKEN: Stand.CANNOT_SERVE,
}


class KubeletEndpoint:
    """run() until cancelled; show() what there is to show whenever that may have changed.

    told: how it stands has changed. grace_seconds: for how long a kubelet that starts anew is not told to be away.
    """

    def __init__(
        self,
        resource_name: str,
        directory: KubeletDirectory,
        mirror: Mirror,
        host: PluginHost,
        watcher: FileWatcher,
        told: Callable[[str], None],
        grace_seconds: float,
    ) -> None:
        self._resource_name = resource_name
        self._directory = directory
        self._mirror, self._host = mirror, host
        self._watcher = watcher
        self._told = told
        self._grace_seconds = grace_seconds
        self._grace: asyncio.TimerHandle | None = None
        self._pace = Pace()
        self._devices = DeviceList()
        self._offer: Offer | None = None
        # whether the kubelet is shown anything now
        self._offers = False
        self._options = api_pb2.DevicePluginOptions()
        self._changed = asyncio.Event()
        self.standing = KubeletStanding(Stand.NOTHING_TO_SHOW)

    def show(self, offer: Offer | None) -> None:
        """What the kubelet is to know from now on; None: nothing of this resource."""
        if offer == self._offer:
            return
        self._offer = offer
        self._offers = offer is not None and self._publish(offer)
        if offer is None:
            self._stands(Stand.NOTHING_TO_SHOW)
        elif offer.options is not None:
            self._options = api_pb2.DevicePluginOptions(
                pre_start_required=offer.options.pre_start_required,
                # also where the plugin gives no advice: cordons and NUMA nodes are ours to steer by
                get_preferred_allocation_available=True,
            )
        self._changed.set()

    def _publish(self, offer: Offer) -> bool:
        """Returns False for what the kubelet would not take."""
        devices = shown(offer)
        size = list_message(devices).ByteSize()
        if size > MAX_LIST_BYTES:
            self._stands(Stand.TOO_MANY, f"{len(devices)} devices make a list of {size} bytes")
            return False
        self._devices.publish(devices)
        return True

    async def run(self) -> None:
        pauses = Backoff(1.0, self._pace.rescan_seconds)
        while True:
            await self._until(lambda: self._offers)
            try:
                await self._serve()
                pauses.reset()
            except (CannotServe, OSError) as exc:
                extra = {"resource_name": self._resource_name, "error": str(exc)}
                log.error("resource cannot be served to the kubelet; trying again", extra=extra)
                self._stands(Stand.CANNOT_SERVE, str(exc))
                await asyncio.sleep(pauses.next())

    async def _serve(self) -> None:
        """Returns when there is nothing to show any more, or other options: those are told with a registration only."""
        options = self._options
        socket = RegisteredSocket(
            self._resource_name,
            endpoint_name(self._resource_name),
            self._directory.device_plugins,
            self._watcher,
            self._pace,
            make_service=partial(PassedOn, self._resource_name, self._devices, options, self._mirror, self._host),
            report=self._heard,
        )
        serving = asyncio.create_task(socket.run())
        over = asyncio.create_task(self._until(lambda: not self._offers or self._options != options))
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

    def _heard(self, standing: RegistrationState, detail: str) -> None:
        # what has been taken back meanwhile stands as show() left it
        if self._offers:
            self._stands(_STANDS[standing], detail)

    def _stands(self, stand: Stand, detail: str = "") -> None:
        found = KubeletStanding(stand, detail)
        if stand is Stand.AWAY and self.standing.stand is Stand.REGISTERED:
            if self._grace is None:
                loop = asyncio.get_running_loop()
                self._grace = loop.call_later(self._grace_seconds, self._say, found)
            return
        self._say(found)

    def _say(self, standing: KubeletStanding) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if standing != self.standing:
            self.standing = standing
            self._told(self._resource_name)
