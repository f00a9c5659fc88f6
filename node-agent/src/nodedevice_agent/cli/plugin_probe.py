"""Makes each call of a device manager to a running device plugin once, and passes the results to plugin_findings.

It uses the agent's own connections, so each call has the agent's deadline and each message its bound. Allocate and
PreStartContainer are called only on request, because they may change a device.
"""

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, cast

from msgspec import Struct
from nodedevice_common.threads import in_thread

from nodedevice_agent.cli import plugin_findings as judged
from nodedevice_agent.cli.plugin_findings import Finding, HostFile, error, ok, skipped
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.list_facts import ListFacts, list_facts
from nodedevice_agent.deviceplugin.plugin_dir import REGISTRATION_SOCKET, PluginDirectory
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer, Rejections
from nodedevice_agent.errors import AgentError, AgentSettingsError, PluginFailed
from nodedevice_agent.lib.cdi_files import devices_of, read_files
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.host_view import sees_all
from nodedevice_agent.lib.patient_reads import ask
from nodedevice_agent.settings import read_topology

# A kubelet waits without limit, and shows no device meanwhile.
FIRST_LIST_SECONDS: Final = 10.0
# Most plugins try to register once in some seconds.
REGISTER_SECONDS: Final = 30.0
_RESTART_SECONDS: Final = 1.0
# of a directory
_MOST_ENTRIES: Final = 10_000
_PREFERRED_SIZE: Final = 2
# the most devices in GetPreferredAllocation: a plugin may compare all pairs
_MOST_AVAILABLE: Final = 64
_IN_POD: Final = "this pod does not see the host's files; run the command on the node, or pass --host-root"


class Probe(Struct, frozen=True):
    """The options of a test. watch_seconds: how long the stream is watched. host_root: the mount point of the host's files."""

    socket: Path
    may_allocate: bool = False
    watch_seconds: float = 5.0
    host_root: str = ""


class _Seen(Struct):
    """A stream of lists. lists, changes: after the first one. ended: why it ended; empty while it is open."""

    first: asyncio.Future[tuple[ListedDevices, bytes]]
    end: asyncio.Event
    latest: ListedDevices | None = None
    lists: int = 0
    changes: int = 0
    ended: str = ""

    def add(self, listed: ListedDevices, octets: bytes) -> None:
        if not self.first.done():
            self.first.set_result((listed, octets))
        else:
            self.lists += 1
            # by value: the order of the devices does not matter
            self.changes += listed != self.latest
        self.latest = listed


async def check_plugin(probe: Probe) -> AsyncIterator[Finding]:
    """Run all checks of the plugin on the socket; yields each finding at once."""
    clock = asyncio.get_running_loop().time
    try:
        connection = await PluginConnection.open(probe.socket.name, probe.socket)
    except PluginFailed as exc:
        remedy = "Serve the DevicePlugin service on this socket before registering, and return from the call at once."
        yield error("options", str(exc), remedy)
        return
    try:
        yield judged.options(connection.options)
        async with _followed(connection) as seen:
            began = clock()
            problem = await _wait_for_list(seen)
            if problem:
                yield problem
                return
            listed, octets = seen.first.result()
            took = clock() - began
            facts = await in_thread(partial(list_facts, octets))
            for finding in _of_list(facts, listed, took):
                yield finding
            yield await _second_stream(probe.socket, listed)
            async for finding in _calls(connection, listed, probe):
                yield finding
            left = probe.watch_seconds - (clock() - began - took)
            with suppress(TimeoutError):
                await asyncio.wait_for(seen.end.wait(), max(left, 0.0))
            yield judged.stream(clock() - began - took, seen.lists, seen.changes, seen.ended)
    finally:
        await connection.aclose()


def _of_list(facts: ListFacts, listed: ListedDevices, seconds: float) -> list[Finding]:
    nodes: tuple[int, ...] = ()
    with suppress(AgentSettingsError):
        nodes = read_topology("none", "container").numa_nodes
    findings = [judged.first_list(facts, seconds), judged.list_size(facts, listed), *judged.device_ids(facts, listed)]
    return [*findings, judged.health(facts), *judged.topology(facts, nodes)]


@asynccontextmanager
async def _followed(connection: PluginConnection) -> AsyncIterator[_Seen]:
    seen = _Seen(asyncio.get_running_loop().create_future(), asyncio.Event())

    async def follow() -> None:
        try:
            async with aclosing(cast("AsyncGenerator[ListedDevices]", connection.device_lists())) as lists:
                async for listed in lists:
                    seen.add(listed, connection.octets)
            seen.ended = "it ended without an error"
        except PluginFailed as exc:
            seen.ended = str(exc)

    def ended(_: object) -> None:
        seen.first.cancel()
        seen.end.set()

    following = asyncio.create_task(follow())
    following.add_done_callback(ended)
    try:
        yield seen
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def _wait_for_list(seen: _Seen) -> Finding | None:
    """Wait for the first list. Returns the problem if it does not come."""
    remedy = "Send the list of all devices as soon as ListAndWatch is called."
    await asyncio.wait([seen.first], timeout=FIRST_LIST_SECONDS)
    if not seen.first.done():
        return error("first list", f"no list within {FIRST_LIST_SECONDS:g} s", remedy)
    if seen.first.cancelled():
        return error("first list", seen.ended, remedy)
    return None


async def _second_stream(socket: Path, first: ListedDevices) -> Finding:
    try:
        connection = await PluginConnection.open(socket.name, socket)
    except PluginFailed as exc:
        return judged.second_stream(first, None, str(exc))
    try:
        async with _followed(connection) as seen:
            problem = await _wait_for_list(seen)
            second = seen.first.result()[0] if problem is None else None
            return judged.second_stream(first, second, problem.text if problem is not None else "")
    finally:
        await connection.aclose()


async def _calls(connection: PluginConnection, listed: ListedDevices, probe: Probe) -> AsyncIterator[Finding]:
    healthy = tuple(listed.healthy_ids)
    check = "GetPreferredAllocation"
    if not connection.options.get_preferred_allocation_available:
        yield skipped(check, "the plugin does not offer it")
    elif not healthy:
        yield skipped(check, "no device is healthy")
    else:
        available = healthy[:_MOST_AVAILABLE]
        size = min(_PREFERRED_SIZE, len(available))
        try:
            yield judged.preferred(available, size, await connection.preferred(available, (), size))
        except PluginFailed as exc:
            yield error(check, str(exc), "Serve it, or do not offer it in DevicePluginOptions.")
    if not probe.may_allocate:
        yield skipped("Allocate", "not called, as a plugin may change the device; --allocate calls it for one device")
    elif not healthy:
        yield skipped("Allocate", "no device is healthy")
    else:
        async for finding in _allocation(connection, healthy[0], probe.host_root):
            yield finding


async def _allocation(connection: PluginConnection, device_id: str, host_root: str) -> AsyncIterator[Finding]:
    """Call Allocate for one device, and PreStartContainer if the plugin requires it."""
    try:
        response = await connection.allocate((device_id,))
    except PluginFailed as exc:
        yield error("Allocate", str(exc), "Return one ContainerAllocateResponse for each container request, in time.")
        return
    edits, defined = response.edits, None
    yield judged.allocate(device_id, len(response.octets), edits)
    if sees_all(host_root):
        reads, root = FileReads(), host_root.rstrip("/")
        devices = await _host_files(reads, root, (device.host_path for device in edits.devices))
        mounts = await _host_files(reads, root, (mount.host_path for mount in edits.mounts))
        for finding in (*judged.device_files(edits, devices), *judged.mounts(edits, mounts)):
            yield finding
        defined = await reads.run(partial(_cdi_names, root)) if edits.cdi_devices else None
    elif edits.devices or edits.mounts:
        yield skipped("mounts", _IN_POD)
    for finding in judged.cdi_devices(edits.cdi_devices, defined):
        yield finding
    if connection.options.pre_start_required:
        try:
            await connection.pre_start((device_id,))
        except PluginFailed as exc:
            yield error("PreStartContainer", str(exc), "Return an empty response in 30 s, or do not require the call.")
        else:
            yield ok("PreStartContainer", "it returned")


async def _host_files(reads: FileReads, root: str, paths: Iterable[str]) -> list[HostFile]:
    return await reads.run(lambda: [_host_file(root, path) for path in paths]) if (paths := list(paths)) else []


def _host_file(root: str, path: str) -> HostFile:
    """Blocks; in a thread of FileReads a device that hangs costs a second."""
    try:
        mode = ask(os.stat, f"{root}{path}").st_mode
    except (FileNotFoundError, NotADirectoryError):
        return HostFile(path, exists=False)
    except (OSError, ValueError) as exc:
        return HostFile(path, exists=None, problem=getattr(exc, "strerror", None) or str(exc))
    return HostFile(path, exists=True, is_device=stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode))


def _cdi_names(root: str) -> frozenset[str]:
    return frozenset(f"{kind}={name}" for kind, name in devices_of(read_files(root, {}).files))


class Registration:
    """Plays a kubelet in the plugin's directory, and its restart. Like a kubelet, it removes the sockets there at a start."""

    def __init__(self, directory: Path) -> None:
        self._path = directory
        self._registered: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._rejections = Rejections()

    async def check(self, others: Callable[[Path], AsyncIterator[Finding]]) -> AsyncIterator[Finding]:
        """others: the checks of the socket that the plugin registers, made between the two registrations."""
        check = "registration"
        try:
            directory = PluginDirectory.take(self._path)
        except AgentError as exc:
            yield error(check, str(exc), "Run the plugin with an empty directory that no kubelet and no agent serves.")
            return
        with closing(directory):
            async with self._served(directory):
                began = asyncio.get_running_loop().time()
                registered = await self._wait()
                if isinstance(registered, str):
                    remedy = "Serve first; then call Register on kubelet.sock of the same directory until it succeeds."
                    yield error(check, registered, remedy)
                    return
                resource_name, endpoint = registered
                seconds = asyncio.get_running_loop().time() - began
                yield ok(check, f"{resource_name}, socket {endpoint}, after {seconds:.1f} s")
                async for finding in others(self._path / endpoint):
                    yield finding
            await asyncio.sleep(_RESTART_SECONDS)
            async with self._served(directory):
                yield await self._again(resource_name)

    @asynccontextmanager
    async def _served(self, directory: PluginDirectory) -> AsyncIterator[None]:
        directory.clear()
        server = RegistrationServer(directory, self._connect, self._rejections)
        await server.start()
        try:
            yield
        finally:
            await server.stop()

    async def _connect(self, resource_name: str, endpoint: str) -> None:
        """A registration succeeds only when the plugin serves, as with a kubelet. Raises PluginFailed."""
        connection = await PluginConnection.open(resource_name, self._path / endpoint)
        await connection.aclose()
        self._registered.put_nowait((resource_name, endpoint))

    async def _wait(self) -> tuple[str, str] | str:
        """The resource name and the socket of the next registration, or the reason of a failure."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._registered.get(), REGISTER_SECONDS)
        return self._rejections.report() or f"no call of Register within {REGISTER_SECONDS:g} s"

    async def _again(self, resource_name: str) -> Finding:
        check = "registration again"
        while not isinstance(registered := await self._wait(), str):
            if registered[0] == resource_name:
                return ok(check, f"{resource_name}, after the kubelet's sockets were removed and created again")
        remedy = "Watch the directory: serve and register again when the plugin's socket vanishes or kubelet.sock is created."
        return error(check, f"after a restart of the kubelet: {registered}", remedy)


def other_sockets(directory: Path, name: str) -> list[str]:
    """Names of the sockets that a kubelet's start would remove besides the plugin's. Raises OSError."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in islice(entries, _MOST_ENTRIES) if stat.S_ISSOCK(os.lstat(entry.path).st_mode)]
    return sorted({*names} - {name, REGISTRATION_SOCKET})
