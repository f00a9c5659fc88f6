"""Serves a plugin's socket in a device manager's directory and keeps it registered there.

A device manager that starts removes every socket in its directory and creates a new kubelet.sock. Both are noticed by file
events, and by a periodic rescan in case an event was lost. Never touches another plugin's socket.
Source: kubelet deviceplugin v1beta1, Registration.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from nodedevice_common.pacing import Backoff

from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, Service, serving
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.lib.filesystem import (
    MAX_PATH_BYTES,
    FileIdentity,
    file_identity,
    grpc_target,
    is_directory,
    is_served,
    unanswered,
)
from nodedevice_agent.lib.grpc_server import CHANNEL_OPTIONS

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import RegistrationAsyncStub

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"
MANAGER_SOCKET = "kubelet.sock"

# between rescans without an event; also how long to stay registered without an open ListAndWatch
RESCAN_SECONDS = 30.0
# the manager dials the plugin for up to 10 s before it responds
_REGISTER_SECONDS = 15.0
_FIRST_RETRY_SECONDS = 0.2
# a socket that was removed sooner than this after it was served is served again with a backoff, at most this long
_SETTLED_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.05
# status of a call to a socket that no process serves, or whose process hangs
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class RegistrationState(Enum):
    """State of a socket at the device manager; the values are log messages."""

    REGISTERED = "registered"
    NO_MANAGER = "device manager is unreachable"
    REFUSED = "device manager rejected the registration"
    NO_DIRECTORY = "plugin directory does not exist yet"
    TAKEN = "another process serves this resource; waiting for it to exit"


class RegisteredSocket:
    """Serves until cancelled.

    endpoint: the socket's file name. make_service: makes the service, each time that the socket is created.
    report: called with the state and a detail whenever the state was checked. while_served: entered with each socket that was made.
    """

    def __init__(
        self,
        resource_name: str,
        endpoint: str,
        plugin_dir: Path,
        watcher: FileWatcher,
        make_service: Callable[[], Service],
        report: Callable[[RegistrationState, str], None] = lambda state, detail: None,
        rescan_seconds: float = RESCAN_SECONDS,
        while_served: Callable[[FileIdentity], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Raises CannotServe."""
        self._resource_name, self._endpoint, self._dir = resource_name, endpoint, plugin_dir
        self._watcher = watcher
        self._rescan_seconds = rescan_seconds
        self._make_service = make_service
        self._report = report
        self._while_served = while_served
        self._logged = (RegistrationState.REGISTERED, "")
        path = os.fsencode(plugin_dir / endpoint)
        if len(path) > MAX_PATH_BYTES:
            raise CannotServe(
                f"{resource_name}: socket path {plugin_dir / endpoint} has {len(path)} bytes, the kernel takes "
                f"{MAX_PATH_BYTES}; use a shorter plugin directory"
            )

    async def run(self) -> None:
        """Raises CannotServe."""
        with closing(self._watcher.subscribe()) as subscription:
            await self._serve(subscription)

    async def _serve(self, subscription: Subscription) -> None:
        # short: a manager that starts just after the plugins removes their sockets and needs them back soon
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _SETTLED_SECONDS)
        loop = asyncio.get_running_loop()
        while True:
            subscription.follow([self._dir])
            if not is_directory(self._dir):
                self._warn(RegistrationState.NO_DIRECTORY, "")
                await subscription.wait(self._rescan_seconds)
                continue
            service = self._make_service()
            began = loop.time()
            async with serving(service, self._dir / self._endpoint) as own_socket:
                with self._while_served(own_socket):
                    await self._stay_registered(service, own_socket, subscription)
            await self._yield_to_newer(subscription)
            log.info("plugin socket was removed; serving it again", extra={"resource_name": self._resource_name})
            if loop.time() - began < _SETTLED_SECONDS:
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()

    async def _yield_to_newer(self, subscription: Subscription) -> None:
        """Wait while a newer agent serves the path: otherwise the two would replace each other's socket for ever."""
        while is_served(self._dir / self._endpoint):
            self._warn(RegistrationState.TAKEN, "")
            await subscription.wait(self._rescan_seconds)

    async def _stay_registered(self, service: Service, own_socket: FileIdentity, subscription: Subscription) -> None:
        """Returns once our socket was removed or replaced."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(min(_FIRST_RETRY_SECONDS, self._rescan_seconds), self._rescan_seconds)
        retry_at = 0.0
        # the manager's socket, and since when, in event loop seconds
        registered: FileIdentity | None = None
        since = 0.0
        # the first check covers earlier events
        subscription.drain()
        while self._is_there(own_socket):
            subscription.follow([self._dir])
            manager = file_identity(self._dir / MANAGER_SOCKET)
            if manager != registered or self._is_forgotten(service, since):
                registered = None
            if manager is None:
                self._report(RegistrationState.NO_MANAGER, f"{MANAGER_SOCKET} is missing in {self._dir}")
            elif not registered and loop.time() >= retry_at:
                if await self._try_to_register(service):
                    registered, since = manager, loop.time()
                    backoff.reset()
                else:
                    retry_at = loop.time() + backoff.next()
            is_due = manager is not None and registered is None
            events = await subscription.wait(max(0.0, retry_at - loop.time()) if is_due else self._rescan_seconds)
            if self._dir / MANAGER_SOCKET in events:
                # even if the identity is equal: inode and time can both repeat
                registered, retry_at = None, 0.0

    def _is_there(self, own_socket: FileIdentity) -> bool:
        """Unless it is known that it is not."""
        with unanswered() as errors:
            found = file_identity(self._dir / self._endpoint)
        return found == own_socket or bool(errors)

    def _is_forgotten(self, service: Service, since: float) -> bool:
        """Whether the manager has had no ListAndWatch open for long: a plugin that it gave up on must register again."""
        return service.streams == 0 and asyncio.get_running_loop().time() - since >= self._rescan_seconds

    async def _try_to_register(self, service: Service) -> bool:
        request = api_pb2.RegisterRequest(
            version=API_VERSION, endpoint=self._endpoint, resource_name=self._resource_name, options=service.options
        )
        manager = grpc_target(self._dir / MANAGER_SOCKET)
        try:
            async with grpc.aio.insecure_channel(manager, options=CHANNEL_OPTIONS) as channel:
                stub = cast("RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
                await stub.Register(request, timeout=_REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            problem = f"{error.code().name}: {error.details() or 'no reason given'}"
            if service.streams > 0:
                # kubelet 1.37 and newer rejects a socket that it is already connected to
                extra = {"resource_name": self._resource_name, "error": problem}
                log.debug("plugin is already registered", extra=extra)
                self._report(RegistrationState.REGISTERED, "")
                return True
            is_unreachable = error.code() in _UNREACHABLE
            self._warn(RegistrationState.NO_MANAGER if is_unreachable else RegistrationState.REFUSED, problem)
            return False
        self._logged = (RegistrationState.REGISTERED, "")
        self._report(RegistrationState.REGISTERED, "")
        log.info("plugin registered", extra={"resource_name": self._resource_name, "endpoint": self._endpoint})
        return True

    def _warn(self, state: RegistrationState, error: str) -> None:
        """Warn once about each new problem; repetitions are logged at debug level."""
        extra = {"resource_name": self._resource_name, "path": str(self._dir), "error": error}
        is_logged = (state, error) == self._logged
        log.log(logging.DEBUG if is_logged else logging.WARNING, state.value, extra=extra)
        self._logged = (state, error)
        self._report(state, error)
