"""Plugins that do not call Register but put a socket into the plugins registry directory: found there, asked, taken in.

A socket that appears is asked what it is; a device plugin that may register is connected as if it had called Register, and is
told how it went. A socket that goes takes its plugin along. One operation at a time for each socket, none waits for another's.
Source: kubelet pkg/kubelet/pluginmanager @ 1.36. On purpose unlike it: plugins of other kinds (CSI, DRA) are left alone in
silence, because their registrars exit when they are told that somebody has not taken them; a recreated socket replaces its
plugin without the resource being without one in between; what is refused by a rule is not asked again until it changes.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodedevice_common.backoff import Backoff

from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_plugin_info
from nodedevice_agent.deviceplugin.plugin_registration_client import Announcement
from nodedevice_agent.deviceplugin.rejections import Refusals
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.unix_sockets import SocketIdentity, socket_identity

log = logging.getLogger(__name__)

DEVICE_PLUGIN = "DevicePlugin"
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 120.0
# File events can be lost; then a look now and then still finds what is there.
_LOOK_SECONDS = 10.0
# Deeper than any plugin puts its socket; a loop of mounts must end.
_MAX_DEPTH = 8

# (resource name, socket) -> endpoint; raises PluginFailed
Connect = Callable[[str, Path], Awaitable[int]]
Disconnect = Callable[[int], Awaitable[None]]


class PluginWatcher:
    """Watches until cancelled. plugin_dir: besides the registry the one place where a plugin may serve."""

    def __init__(
        self, registry_dir: Path, plugin_dir: Path, connect: Connect, disconnect: Disconnect, refusals: Refusals
    ) -> None:
        self._registry_dir = registry_dir
        self._allowed = (registry_dir, plugin_dir)
        self._connect = connect
        self._disconnect = disconnect
        self._refusals = refusals
        self._registrants: dict[Path, _Registrant] = {}

    async def run(self) -> None:
        log.info("watching for plugins", extra={"directory": str(self._registry_dir)})
        with FileWatcher() as watcher:
            changes = watcher.subscribe()
            async with asyncio.TaskGroup() as tasks:
                while True:
                    directories = set(_directories(self._registry_dir))
                    changes.follow({self._registry_dir, *directories})
                    # one that came between the look and the watch would be missed: look again
                    if directories == set(_directories(self._registry_dir)):
                        self._compare(dict(_sockets(directories)), tasks)
                        await changes.wait(_LOOK_SECONDS)

    def _compare(self, present: dict[Path, SocketIdentity], tasks: asyncio.TaskGroup) -> None:
        for path, registrant in self._registrants.items():
            registrant.want(present.get(path))
        for path in present.keys() - self._registrants.keys():
            registrant = self._registrants[path] = _Registrant(path, self._register, self._disconnect, self._refusals)
            registrant.want(present[path])
            tasks.create_task(self._keep(path, registrant))

    async def _keep(self, path: Path, registrant: "_Registrant") -> None:
        await registrant.run()
        # nothing is awaited in between: whatever appears now gets a new one
        del self._registrants[path]

    async def _register(self, path: Path) -> "_Registered | None":
        """Ask, check, connect, tell. None where there is nothing to do. Raises RegistrationRejected, PluginFailed."""
        async with Announcement.open(path) as announcement:
            info = await announcement.info()
            if info.kind != DEVICE_PLUGIN:
                log.debug("not a device plugin", extra={"socket": str(path), "type": info.kind[:64]})
                return None
            try:
                check_plugin_info(info.name, info.supported_versions)
                socket = _serving_socket(path, info.endpoint, self._allowed)
                endpoint = await self._connect(info.name, socket)
            except (RegistrationRejected, PluginFailed) as exc:
                await announcement.tell(str(exc))
                raise
            await announcement.tell("")
        return _Registered(info.name, socket, endpoint)


@dataclass(frozen=True, slots=True)
class _Registered:
    resource_name: str
    socket: Path
    endpoint: int


class _Registrant:
    """One socket path: what is there, what has been registered, and the one operation that brings them together."""

    def __init__(
        self,
        path: Path,
        register: Callable[[Path], Awaitable[_Registered | None]],
        disconnect: Disconnect,
        refusals: Refusals,
    ) -> None:
        self._path = path
        self._register = register
        self._disconnect = disconnect
        self._refusals = refusals
        self._wanted: SocketIdentity | None = None
        self._changed = asyncio.Event()

    def want(self, identity: SocketIdentity | None) -> None:
        """What is there now; None: the socket has gone."""
        if identity != self._wanted:
            self._wanted = identity
            self._changed.set()

    async def run(self) -> None:
        """Until the socket has gone and its plugin with it."""
        standing: _Registered | None = None
        pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while self._wanted is not None:
            self._changed.clear()
            pause: float | None = None
            before, standing = standing, None
            try:
                standing = await self._register(self._path)
            except RegistrationRejected as exc:
                self._complain(exc.reason, exc)
            except PluginFailed as exc:
                pause = pauses.next()
                if pause == FIRST_PAUSE_SECONDS:
                    self._complain(exc.call, exc)
            await self._drop(before, standing)
            if await self._has_changed_within(pause):
                pauses.reset()
        await self._drop(standing, None)

    async def _drop(self, before: _Registered | None, now: _Registered | None) -> None:
        """What a recreated socket announced earlier; the host itself replaces a plugin at the same socket, without a gap."""
        if before is not None and (
            now is None or (before.resource_name, before.socket) != (now.resource_name, now.socket)
        ):
            await self._disconnect(before.endpoint)

    async def _has_changed_within(self, pause: float | None) -> bool:
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _complain(self, reason: str, error: Exception) -> None:
        self._refusals.add(reason, error, socket=str(self._path))


def _directories(directory: Path, depth: int = 0) -> Iterator[Path]:
    """This directory, if it is there, and those below it; hidden ones and links are passed over."""
    try:
        below = [
            Path(e.path) for e in os.scandir(directory) if not _is_hidden(e.name) and e.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return
    yield directory
    for path in below if depth < _MAX_DEPTH else ():
        yield from _directories(path, depth + 1)


def _sockets(directories: set[Path]) -> Iterator[tuple[Path, SocketIdentity]]:
    for directory in directories:
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for path in (directory / name for name in names if not _is_hidden(name)):
            identity = socket_identity(path)
            if identity is not None and _is_socket(path):
                yield path, identity


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _serving_socket(announced: Path, endpoint: str, allowed: tuple[Path, ...]) -> Path:
    """Where the plugin serves: the announcing socket itself, or a path inside the directories that are ours to look into.

    Links are followed first, so that none leads out. Raises RegistrationRejected.
    """
    if not endpoint:
        return announced
    path = Path(endpoint)
    is_sane = path.is_absolute() and endpoint.isprintable()
    if not is_sane or not any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(d)) for d in allowed):
        raise RegistrationRejected(
            "Endpoint",
            f"endpoint {endpoint[:200]!a}: must be empty or the whole path of a socket below "
            + " or ".join(map(str, allowed)),
        )
    return path
