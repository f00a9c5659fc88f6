"""Discovers and registers plugins that create a socket in the plugins registry directory instead of calling Register.

Each socket has one operation at a time, and sockets do not wait for each other.
Source: kubelet pkg/kubelet/pluginmanager @ 1.36; its operationexecutor for the calls and their deadlines. Unlike it: plugins of
other kinds (CSI, DRA) are ignored silently, because their registrars exit when they are notified of a failure; a recreated
socket replaces its plugin without a gap for the resource; only the file name of an endpoint elsewhere counts; a plugin that a
rule rejects is not contacted again until its socket changes.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2, api_pb2_grpc
from nodedevice_common.pacing import Backoff
from nodedevice_common.tasks import retried
from nodedevice_common.text import shown

from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_plugin_info
from nodedevice_agent.deviceplugin.connection import PluginConnection, open_channel, rpc_error_text
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity, is_socket, note_unanswered, unanswered

log = logging.getLogger(__name__)

DEVICE_PLUGIN = "DevicePlugin"
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 120.0
# File events can be lost, so the directory is polled too.
_POLL_SECONDS = 10.0
_RETRY_SECONDS = 1.0
# Deeper than any plugin creates its socket; a loop of mounts must end.
_MAX_DEPTH = 8
# Each silent socket is retried. A node has at most 256 names of device plugins, and a few of other kinds.
MAX_SOCKETS = 1024
DIAL_SECONDS = 10.0
INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
_MAX_MESSAGE_BYTES = 64 * 1024
_MAX_ERROR_CHARACTERS = 512


class PluginWatcher:
    """Watches until cancelled. A plugin may serve in the registry directory or in the host's plugin directory."""

    def __init__(self, registry_dir: Path, host: PluginHost) -> None:
        self._registry_dir = registry_dir
        self._host = host
        self._sockets: dict[Path, _RegistrySocket] = {}
        self._is_full = False
        self._unread: dict[str, str] = {}

    async def run(self) -> None:
        log.info("watching for plugins", extra={"directory": str(self._registry_dir)})
        with FileWatcher() as watcher:
            changes = watcher.subscribe()
            async with asyncio.TaskGroup() as tasks:
                # a run after a failure: their plugins are still connected
                for path, socket in self._sockets.items():
                    tasks.create_task(self._run(path, socket))
                while True:
                    with unanswered() as errors:
                        directories = _files(self._registry_dir).keys()
                        changes.follow({self._registry_dir, *directories})
                        # a directory created between listing and watching would be missed: list again
                        files = _files(self._registry_dir)
                        if directories != files.keys():
                            continue
                        present = dict(_sockets(files))
                    self._note(errors)
                    self._update(present, tasks)
                    await changes.wait(_RETRY_SECONDS if errors else _POLL_SECONDS)

    def _note(self, errors: Mapping[str, str]) -> None:
        """A failed read does not mean that a plugin is gone. Logged once for each path."""
        for path in errors.keys() - self._unread.keys():
            extra = {"path": path, "error": errors[path], "retry_in_seconds": _RETRY_SECONDS}
            log.warning("cannot list plugin sockets; keeping the known ones", extra=extra)
        self._unread = dict(errors)

    def _update(self, present: dict[Path, FileIdentity], tasks: asyncio.TaskGroup) -> None:
        new = sorted(present.keys() - self._sockets.keys())
        room = MAX_SOCKETS - len(self._sockets)
        if len(new) > room and not self._is_full:
            extra = {"directory": str(self._registry_dir), "sockets": len(present), "limit": MAX_SOCKETS}
            log.error("too many plugin sockets; ignoring some: remove the sockets without a server", extra=extra)
        self._is_full = len(new) > room
        for path in new[:room]:
            self._sockets[path] = _RegistrySocket(path, self._registry_dir, self._host)
            tasks.create_task(self._run(path, self._sockets[path]))
        for path, socket in self._sockets.items():
            if path in present or not self._unread:
                socket.set_identity(present.get(path))

    async def _run(self, path: Path, socket: "_RegistrySocket") -> None:
        await retried("registry socket", socket.run, socket=shown(path))
        # no await in between: a socket that appears now gets a new object
        del self._sockets[path]


class _RegistrySocket:
    """One socket path: the file there, and the registered plugin."""

    def __init__(self, path: Path, registry_dir: Path, host: PluginHost) -> None:
        self._path = path
        self._shown = shown(path)
        self._host = host
        self._allowed = (registry_dir, host.directory.path)
        self._identity: FileIdentity | None = None
        self._changed = asyncio.Event()
        # the connected plugins: a failed run may leave the earlier and the new one
        self._plugins: list[PluginConnection] = []

    def set_identity(self, identity: FileIdentity | None) -> None:
        """The socket that exists now; None: it was removed."""
        if identity != self._identity:
            self._identity = identity
            self._changed.set()

    async def run(self) -> None:
        """Runs until the socket has been removed and its plugin disconnected."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while self._identity is not None:
            self._changed.clear()
            pause: float | None = None
            plugin: PluginConnection | None = None
            before = self._plugins[-1] if self._plugins else None
            try:
                plugin = await self._register(before.ended_before + 1 if before is not None and before.is_closed else 0)
            except RegistrationRejected as exc:
                self._host.rejections.add(exc.reason, exc, socket=self._shown)
            except PluginFailed as exc:
                pause = backoff.next()
                if pause == FIRST_PAUSE_SECONDS:
                    # the text of a limit that may be free later is the same for all names
                    why = exc.__cause__ if isinstance(exc.__cause__, RegistrationRejected) else exc
                    reason = why.reason if isinstance(why, RegistrationRejected) else exc.call
                    self._host.rejections.add(reason, why, socket=self._shown)
            await self._keep_only(plugin)
            if await self._has_changed_within(pause):
                backoff.reset()
        await self._keep_only(None)

    async def _register(self, ended_before: int) -> PluginConnection | None:
        """Get the info, check it, connect, notify. None for other plugins. Raises RegistrationRejected, PluginFailed."""
        async with registration_client(self._path) as client:
            info = await get_info(client, self._path)
            if info.type != DEVICE_PLUGIN:
                log.debug("not a device plugin", extra={"socket": self._shown, "type": info.type[:64]})
                return None
            try:
                check_plugin_info(info.name, info.supported_versions)
                socket = _serving_socket(self._path, info.endpoint, self._allowed)
                plugin = await self._host.connect(info.name, socket)
                plugin.ended_before, plugin.on_ended = ended_before, self._changed.set
                self._plugins.append(plugin)
            except (RegistrationRejected, PluginFailed) as exc:
                await notify(client, self._path, str(exc))
                raise
            await notify(client, self._path, "")
        return plugin

    async def _keep_only(self, now: PluginConnection | None) -> None:
        """Disconnect all others, but not the same plugin: the host replaces a plugin at the same socket, without a gap."""
        for before in self._plugins:
            if now is None or (before.resource_name, before.socket) != (now.resource_name, now.socket):
                await before.aclose()
        self._plugins = [] if now is None else [now]

    async def _has_changed_within(self, pause: float | None) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                return await self._changed.wait()
        return False


@asynccontextmanager
async def registration_client(socket: Path) -> AsyncIterator["api_pb2_grpc.RegistrationAsyncStub"]:
    """Dial the Registration service that a plugin serves on its socket in the plugins registry directory. Raises PluginFailed."""
    async with open_channel(socket, _MAX_MESSAGE_BYTES) as channel:
        try:
            await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
        except TimeoutError as exc:
            raise PluginFailed(str(socket), "Dialling", f"no response within {DIAL_SECONDS:.0f} s") from exc
        # the asynchronous stub exists for the type checker alone
        yield cast("api_pb2_grpc.RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))


async def get_info(client: "api_pb2_grpc.RegistrationAsyncStub", socket: Path) -> api_pb2.PluginInfo:
    """type: DevicePlugin, CSIPlugin, DRAPlugin. endpoint: path of the serving socket, empty for this one. Raises PluginFailed."""
    try:
        info = await client.GetInfo(api_pb2.InfoRequest(), timeout=INFO_SECONDS)
    except grpc.RpcError as exc:
        raise PluginFailed(str(socket), "GetInfo", rpc_error_text(exc)) from exc
    if info is None:
        # for a message that it cannot parse, grpc returns None instead of an error
        raise PluginFailed(str(socket), "GetInfo", "the response is not a message of the plugin registration API")
    return info


async def notify(client: "api_pb2_grpc.RegistrationAsyncStub", socket: Path, problem: str) -> None:
    """Report the result of the registration, empty for success. An error of this call changes nothing."""
    status = api_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
    try:
        await client.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
    except grpc.RpcError as exc:
        extra = {"socket": str(socket), "error": rpc_error_text(exc)[:_MAX_ERROR_CHARACTERS]}
        log.warning("cannot notify the plugin of its registration status", extra=extra)


def _files(registry_dir: Path) -> dict[Path, list[str]]:
    """The names of files in this directory, if it exists, and in its subdirectories, without hidden ones and links."""
    names_by_directory: dict[Path, list[str]] = {}
    walk = os.walk(registry_dir, onerror=lambda error: note_unanswered(str(error.filename), error))
    for top, subdirectories, names in walk:
        directory = Path(top)
        names_by_directory[directory] = [name for name in names if not name.startswith(".")]
        is_deep = len(directory.relative_to(registry_dir).parts) >= _MAX_DEPTH
        subdirectories[:] = [] if is_deep else [name for name in subdirectories if not name.startswith(".")]
    return names_by_directory


def _sockets(files: Mapping[Path, Iterable[str]]) -> Iterator[tuple[Path, FileIdentity]]:
    for path in (directory / name for directory, names in files.items() for name in names):
        identity = file_identity(path)
        if identity is not None and is_socket(path, follow_symlinks=False):
            yield path, identity


def _serving_socket(registry_socket: Path, endpoint: str, allowed: tuple[Path, ...]) -> Path:
    """The socket on which the plugin serves: the registry socket itself, or a path inside the allowed directories.

    A plugin in a container has its own paths, mostly the kubelet's. Only the file name of such a path counts: in the directory
    of the registry socket, or in an allowed one. Links are resolved first, so none leads out. Raises RegistrationRejected.
    """
    if not endpoint:
        return registry_socket
    path = Path(endpoint)
    if path.is_absolute() and endpoint.isprintable():
        if any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(d)) for d in allowed):
            return path
        for here in (directory / path.name for directory in (registry_socket.parent, *allowed)):
            if is_socket(here, follow_symlinks=False):
                return here
    raise RegistrationRejected(
        "Endpoint",
        f"endpoint {endpoint[:200]!a}: must be empty, or the whole path of a socket below "
        + " or ".join(map(str, allowed))
        + ", or end in the name of a socket there",
    )
