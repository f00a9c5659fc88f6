"""One plugin's life: serve its source on a socket of its own, register, and do so again whenever that is undone.

A device manager that starts removes every socket in its directory and makes a new kubelet.sock; both are seen at once, and
looked for from time to time in case the event was lost. Never touches another plugin's socket.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2_grpc

from nodedevice_agent.plugins.backoff import Backoff
from nodedevice_agent.plugins.core.resource_names import socket_name
from nodedevice_agent.plugins.file_watcher import FileWatcher, Subscription
from nodedevice_agent.plugins.registration import (
    MANAGER_SOCKET,
    RegistrationFailed,
    SocketIdentity,
    is_served,
    register,
    socket_identity,
)
from nodedevice_agent.plugins.service import DevicePluginService, options
from nodedevice_agent.plugins.source import DeviceSource

log = logging.getLogger(__name__)

# What the kernel's sockaddr_un has room for, without its closing NUL.
_MAX_SOCKET_PATH_BYTES = 107
_PRIVATE = 0o177
_FIRST_PAUSE_SECONDS = 0.05
_serial = itertools.count(1)


class CannotServe(Exception):
    """No socket can be made for the plugin; the text names the path and the remedy."""


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


@dataclass(slots=True)
class _Registered:
    """With which manager, and since when (event loop seconds)."""

    manager: SocketIdentity
    since: float


class PluginHost:
    """Serves one source in one plugin directory until cancelled."""

    def __init__(self, source: DeviceSource, plugin_dir: Path, watcher: FileWatcher, pace: Pace | None = None) -> None:
        self._source = source
        self._dir = plugin_dir
        self._watcher = watcher
        self._pace = pace or Pace()
        self._endpoint = socket_name(source.resource_name)
        self._said = ""
        path = os.fsencode(plugin_dir / self._endpoint)
        if len(path) > _MAX_SOCKET_PATH_BYTES:
            raise CannotServe(
                f"{source.resource_name}: socket path {plugin_dir / self._endpoint} has {len(path)} bytes, the kernel takes "
                f"{_MAX_SOCKET_PATH_BYTES}; use a shorter plugin directory"
            )

    async def run(self) -> None:
        """Raises CannotServe, OSError (the first look at the devices failed) or what the source raises."""
        self._source.refresh()
        subscription = self._watcher.subscribe()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._source.run())
                group.create_task(self._serve(subscription))
        finally:
            subscription.close()

    async def _serve(self, subscription: Subscription) -> None:
        # short: a manager that starts just after the plugins removes their sockets, and wants them back soon
        pauses = Backoff(_FIRST_PAUSE_SECONDS, self._pace.settled_seconds)
        loop = asyncio.get_running_loop()
        while True:
            subscription.follow([self._dir])
            if not self._dir.is_dir():
                self._say("plugin directory is not there yet", "")
                await subscription.wait(self._pace.rescan_seconds)
                continue
            service = DevicePluginService(self._source)
            began = loop.time()
            async with serving(service, self._dir / self._endpoint) as own_socket:
                await self._stay_registered(service, own_socket, subscription)
            await self._give_way(subscription)
            log.info("plugin socket is gone; serving anew", extra={"resource_name": self._source.resource_name})
            if loop.time() - began < self._pace.settled_seconds:
                await asyncio.sleep(pauses.next())
            else:
                pauses.reset()

    async def _give_way(self, subscription: Subscription) -> None:
        """A newer agent may have taken the path over: the newest serves, or the two would take it from each other for ever."""
        while is_served(self._dir / self._endpoint):
            self._say("another process serves this resource; waiting until it ends", "")
            await subscription.wait(self._pace.rescan_seconds)

    async def _stay_registered(
        self, service: DevicePluginService, own_socket: SocketIdentity, subscription: Subscription
    ) -> None:
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
            if manager and not registered and loop.time() >= retry_at:
                if await self._try_to_register():
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

    def _is_forgotten(self, registered: _Registered, service: DevicePluginService) -> bool:
        """The manager lives, but has not listened for long; a plugin it gave up on must announce itself again."""
        age = asyncio.get_running_loop().time() - registered.since
        return service.streams == 0 and age >= self._pace.rescan_seconds

    async def _try_to_register(self) -> bool:
        resource_name = self._source.resource_name
        try:
            await register(self._dir, self._endpoint, resource_name, options(self._source), self._pace.register_seconds)
        except RegistrationFailed as error:
            self._say("device manager did not take the registration", str(error))
            return False
        self._said = ""
        log.info("plugin registered", extra={"resource_name": resource_name, "endpoint": self._endpoint})
        return True

    def _say(self, event: str, error: str) -> None:
        """Warn once of each new trouble; the same one again is for debugging only."""
        extra = {"resource_name": self._source.resource_name, "path": str(self._dir), "error": error}
        said = f"{event} {error}"
        log.log(logging.DEBUG if said == self._said else logging.WARNING, event, extra=extra)
        self._said = said


@asynccontextmanager
async def serving(service: DevicePluginService, path: Path) -> AsyncIterator[SocketIdentity]:
    """Serve on this path, mode 0600; afterwards the socket is gone, unless it is another's by now. Raises CannotServe."""
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)
    own_socket = _bind(server, path)
    await server.start()
    try:
        yield own_socket
    finally:
        _remove(path, own_socket)
        await server.stop(None)


def _remove(path: Path, own_socket: SocketIdentity) -> None:
    if socket_identity(path) == own_socket:
        path.unlink(missing_ok=True)


def _bind(server: grpc.aio.Server, path: Path) -> SocketIdentity:
    """Bind under a name of this moment, then move into place.

    A server removes the path it was bound to when it stops, whoever's socket is there by then: so it must never have been
    bound to the one that the next server uses.
    """
    own = path.with_name(f".{os.getpid()}-{next(_serial)}")
    umask = os.umask(_PRIVATE)
    try:
        server.add_insecure_port(f"unix:{own}")
    except RuntimeError as error:
        raise CannotServe(
            f"cannot make a socket in {path.parent}: {error}; is the directory there and writable?"
        ) from None
    finally:
        os.umask(umask)
    try:
        own.rename(path)
    except OSError as error:
        raise CannotServe(f"cannot move the new socket to {path}: {error.strerror}") from error
    identity = socket_identity(path)
    if identity is None:
        raise CannotServe(f"{path} vanished while it was made")
    return identity
