"""One socket that is served in a device manager's directory and registered there, and again whenever that is undone.

A device manager that starts removes every socket in its directory and makes a new kubelet.sock; both are seen at once, and
looked for from time to time in case the event was lost. Never touches another plugin's socket.

Source: kubelet deviceplugin v1beta1, Registration.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from nodedevice_common.backoff import Backoff

from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, Service, serving
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import RegistrationAsyncStub
from nodedevice_agent.lib.unix_sockets import MAX_PATH_BYTES, SocketIdentity, is_served, socket_identity

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"
MANAGER_SOCKET = "kubelet.sock"

CHANNEL_OPTIONS = (
    # Without it the %-encoded path is the authority, which servers written in Rust and C# refuse.
    ("grpc.default_authority", "localhost"),
    # Channels to one path share a connection otherwise, and a new manager's plugin would still talk to the old one.
    ("grpc.use_local_subchannel_pool", 1),
)
_FIRST_PAUSE_SECONDS = 0.05
# gRPC's words for a socket file without anybody behind it, or with somebody who does not answer
_NOBODY = ("UNAVAILABLE", "DEADLINE_EXCEEDED")


class RegistrationFailed(Exception):
    """The device manager did not take the registration; `code` is the gRPC status, the text what it said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Pace:
    """How patient a plugin is, in seconds."""

    # looking again although nothing was reported; also how long to stay registered with nobody listening
    rescan_seconds: float = 30.0
    # the manager dials the plugin back for up to 10 s before it answers
    register_seconds: float = 15.0
    first_retry_seconds: float = 0.2
    # a plugin whose socket was gone sooner than this waits before the next try, and never longer than this
    settled_seconds: float = 1.0

    def backoff(self) -> Backoff:
        """Pauses between tries, never longer than a rescan."""
        return Backoff(min(self.first_retry_seconds, self.rescan_seconds), self.rescan_seconds)


class Standing(Enum):
    """How a socket stands with the device manager."""

    REGISTERED = "registered"
    NO_MANAGER = "no device manager answers"
    REFUSED = "device manager did not take the registration"
    NO_DIRECTORY = "plugin directory is not there yet"
    TAKEN = "another process serves this resource; waiting until it ends"


@dataclass(slots=True)
class _Registered:
    """With which manager, and since when (event loop seconds)."""

    manager: SocketIdentity
    since: float


class RegisteredSocket:
    """Serves until cancelled.

    endpoint: the socket's file name. make_service: a service for each time that the socket is made. options: what the manager
    is told with the registration. told: how it stands, whenever that was looked at, and what else is known.
    """

    def __init__(
        self,
        resource_name: str,
        endpoint: str,
        plugin_dir: Path,
        watcher: FileWatcher,
        pace: Pace,
        make_service: Callable[[], Service],
        options: Callable[[], api_pb2.DevicePluginOptions],
        told: Callable[[Standing, str], None] | None = None,
    ) -> None:
        """Raises CannotServe."""
        self._resource_name, self._endpoint, self._dir = resource_name, endpoint, plugin_dir
        self._watcher = watcher
        self._pace = pace
        self._make_service = make_service
        self._options = options
        self._told = told
        self._said = (Standing.REGISTERED, "")
        path = os.fsencode(plugin_dir / endpoint)
        if len(path) > MAX_PATH_BYTES:
            raise CannotServe(
                f"{resource_name}: socket path {plugin_dir / endpoint} has {len(path)} bytes, the kernel takes "
                f"{MAX_PATH_BYTES}; use a shorter plugin directory"
            )

    async def run(self) -> None:
        """Raises CannotServe."""
        subscription = self._watcher.subscribe()
        try:
            await self._serve(subscription)
        finally:
            subscription.close()

    async def _serve(self, subscription: Subscription) -> None:
        # short: a manager that starts just after the plugins removes their sockets, and wants them back soon
        pauses = Backoff(_FIRST_PAUSE_SECONDS, self._pace.settled_seconds)
        loop = asyncio.get_running_loop()
        while True:
            subscription.follow([self._dir])
            if not self._dir.is_dir():
                self._say(Standing.NO_DIRECTORY, "")
                await subscription.wait(self._pace.rescan_seconds)
                continue
            service = self._make_service()
            began = loop.time()
            async with serving(service, self._dir / self._endpoint) as own_socket:
                await self._stay_registered(service, own_socket, subscription)
            await self._give_way(subscription)
            log.info("plugin socket is gone; serving anew", extra={"resource_name": self._resource_name})
            if loop.time() - began < self._pace.settled_seconds:
                await asyncio.sleep(pauses.next())
            else:
                pauses.reset()

    async def _give_way(self, subscription: Subscription) -> None:
        """A newer agent may have taken the path over: the newest serves, or the two would take it from each other for ever."""
        while is_served(self._dir / self._endpoint):
            self._say(Standing.TAKEN, "")
            await subscription.wait(self._pace.rescan_seconds)

    async def _stay_registered(self, service: Service, own_socket: SocketIdentity, subscription: Subscription) -> None:
        """Returns once our own socket is gone or another's."""
        loop = asyncio.get_running_loop()
        pauses, retry_at = self._pace.backoff(), 0.0
        registered: _Registered | None = None
        # what was reported before the first look is covered by that look
        subscription.drain()
        while socket_identity(self._dir / self._endpoint) == own_socket:
            subscription.follow([self._dir])
            manager = socket_identity(self._dir / MANAGER_SOCKET)
            if registered and (manager != registered.manager or self._is_forgotten(registered, service)):
                registered = None
            if manager is None:
                self._tell(Standing.NO_MANAGER, f"there is no {MANAGER_SOCKET} in {self._dir}")
            elif not registered and loop.time() >= retry_at:
                if await self._try_to_register(service):
                    registered = _Registered(manager, loop.time())
                    pauses.reset()
                else:
                    retry_at = loop.time() + pauses.next()
            is_due = manager is not None and registered is None
            happened = await subscription.wait(
                max(0.0, retry_at - loop.time()) if is_due else self._pace.rescan_seconds
            )
            if self._dir / MANAGER_SOCKET in happened:
                # even when it looks the same: inode and time can both repeat
                registered, retry_at = None, 0.0

    def _is_forgotten(self, registered: _Registered, service: Service) -> bool:
        """The manager lives, but has not listened for long; a plugin it gave up on must announce itself again."""
        age = asyncio.get_running_loop().time() - registered.since
        return service.streams == 0 and age >= self._pace.rescan_seconds

    async def _try_to_register(self, service: Service) -> bool:
        try:
            await register(self._dir, self._endpoint, self._resource_name, self._options(), self._pace.register_seconds)
        except RegistrationFailed as error:
            if service.streams > 0:
                # a kubelet of 1.37 and newer refuses a socket that it is connected to already
                log.debug("registered before", extra={"resource_name": self._resource_name, "error": str(error)})
                self._tell(Standing.REGISTERED)
                return True
            self._say(Standing.NO_MANAGER if error.code in _NOBODY else Standing.REFUSED, str(error))
            return False
        self._said = (Standing.REGISTERED, "")
        self._tell(Standing.REGISTERED)
        log.info("plugin registered", extra={"resource_name": self._resource_name, "endpoint": self._endpoint})
        return True

    def _say(self, standing: Standing, error: str) -> None:
        """Warn once of each new trouble; the same one again is for debugging only."""
        extra = {"resource_name": self._resource_name, "path": str(self._dir), "error": error}
        said = (standing, error)
        log.log(logging.DEBUG if said == self._said else logging.WARNING, standing.value, extra=extra)
        self._said = said
        self._tell(standing, error)

    def _tell(self, standing: Standing, detail: str = "") -> None:
        if self._told is not None:
            self._told(standing, detail)


async def register(
    plugin_dir: Path,
    endpoint: str,
    resource_name: str,
    options: api_pb2.DevicePluginOptions,
    timeout_seconds: float,
) -> None:
    """Announce a plugin that already serves on `endpoint`, a file name in plugin_dir. Raises RegistrationFailed."""
    request = api_pb2.RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=resource_name, options=options
    )
    async with grpc.aio.insecure_channel(f"unix:{plugin_dir / MANAGER_SOCKET}", options=CHANNEL_OPTIONS) as channel:
        stub = cast("RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
        try:
            await stub.Register(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise RegistrationFailed(error.code().name, error.details() or "no reason given") from error
