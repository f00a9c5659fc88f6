"""Runs the device manager in the event loop: passes it the events of device plugins, and carries out its effects.

All of the manager's state is used in the event loop's thread alone. Calls to plugins run as tasks of their own, so that a plugin
that hangs delays no other; their results are events again. Never uses the API server.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, assert_never

from msgspec import structs
from nodedevice_common.paced_log import PacedLog
from nodedevice_common.tasks import retried

from nodedevice_agent import metrics
from nodedevice_agent.checkpoint.durable_requests import DurableRequests
from nodedevice_agent.checkpoint.writer import CheckpointWriter
from nodedevice_agent.devicemanager import effects
from nodedevice_agent.devicemanager.allocation.assignments import USED
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, PluginSocket
from nodedevice_agent.devicemanager.registration import RegistrationRejected
from nodedevice_agent.deviceplugin.admission import Admission
from nodedevice_agent.deviceplugin.calls import PluginCalls
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.device_lists import DeviceLists
from nodedevice_agent.deviceplugin.holdings import HoldingsSync
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.reconnect_after_restart import reconnect
from nodedevice_agent.deviceplugin.redial import MOST_REDIAL_SECONDS, Redials
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer, Rejections
from nodedevice_agent.deviceplugin.replaced_connections import ReplacedConnections
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.lib.vital import vital

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 2.0
_MOST_SOCKETS = 8


class PluginHost:
    """One plugin directory and its manager.

    publish: called with the name of each resource whose snapshot may have changed. were_connected: the plugins to reconnect to.
    on_problem: called with the reason why plugins cannot register, and with "" once they can. built_in: plugins of this process.
    """

    def __init__(
        self,
        manager: DeviceManager,
        state_dir: Path,
        directory: PluginDirectory,
        publish: Callable[[str], None],
        were_connected: Iterable[PluginSocket] = (),
        on_problem: Callable[[str], None] = lambda problem: None,
        built_in: BuiltInSockets | None = None,
    ) -> None:
        self.manager = manager
        self.directory = directory
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        # monotonic seconds, the `now` of the manager's events
        self.now = self._loop.time
        self._writer = CheckpointWriter(state_dir, self._checkpoint, self._publish_all)
        self._durable = DurableRequests(self._writer)
        self.saved = self._durable.saved
        self.rejections = Rejections()
        # a plugin may register and disconnect many times a second
        self._lines = PacedLog(log)
        self._server = RegistrationServer(directory, self._register, self.rejections)
        self._were_connected = tuple(were_connected)
        self._on_problem = on_problem
        self._built_in = built_in or BuiltInSockets()
        self._connections: dict[int, PluginConnection] = {}
        self._holdings: dict[str, HoldingsSync] = {}
        self.calls = PluginCalls(manager, self._connections, self._holdings, self.settle, self.now, self.saved)
        self.newest = self.calls.newest
        replaced = ReplacedConnections(self._connections, self.now)
        self._lists = DeviceLists(
            manager, self._connections, self.settle, self.now, self._start_call, replaced.close_older
        )
        self._admission = Admission(manager, self._connections, self.settle, self.now, self._lines)
        # by endpoint: the plugin's socket for the next start; unlike _connections it stays when the connections are closed
        self._sockets: dict[int, PluginSocket] = {}
        self._redials = Redials(self._connect_again)
        self._endpoints = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._failed: asyncio.Future[NoReturn] = self._loop.create_future()
        # set for a moment whenever effects have been carried out: wakes tasks that wait for a change
        self.effects_done = asyncio.Event()
        self._is_ending = False
        self._tasks: asyncio.TaskGroup
        # set once plugins can register; until then a socket in the directory may be removed as a stale one
        self.is_serving = asyncio.Event()

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve plugins, with tasks in that group; when it has ended, call drain()."""
        self._tasks = tasks
        tasks.create_task(vital("device manager", self._detect_end))
        self._set_timer()
        for connection, socket_name in await reconnect(self.directory, self._were_connected):
            self._adopt(connection, socket_name)
        await self._server.start()
        self.is_serving.set()
        self._on_problem("")
        tasks.create_task(retried("registration socket", partial(self._server.keep, self._on_problem)))
        log.info("serving device plugins", extra={"directory": str(self.directory.path)})

    async def _detect_end(self) -> None:
        """Reject registrations once the tasks are being cancelled. Raises an exception of the manager's timer."""
        try:
            await self._failed
        finally:
            self._is_ending = True

    async def drain(self) -> None:
        """Stop serving and write the decided state."""
        if self._timer is not None:
            self._timer.cancel()
        await self._server.stop()
        self._lines.flush()
        for connection in list(self._connections.values()):
            await connection.aclose()
        await self._writer.close(_DRAIN_SECONDS)

    @property
    def unsaved(self) -> str:
        """Why the checkpoint cannot be written; empty while it can."""
        return self._writer.problem

    def _publish_all(self) -> None:
        for resource_name in self.manager.resources:
            self._publish(resource_name)

    def settle(self) -> None:
        """Carry out the effects of each event of the device manager, in the same turn of the event loop."""
        for effect in self.manager.settle(self.now()):
            match effect:
                case effects.Publish():
                    self._publish(effect.resource_name)
                case effects.SaveCheckpoint():
                    number = self._save()
                    if effect.durable:
                        self._durable.add(effect.pod_uid, number)
                case effects.CallPreferred():
                    self._start_call(self.calls.preferred(effect))
                case effects.CallAllocate():
                    self._start_call(self.calls.allocate(effect))
                case effects.CallPreStart():
                    self._start_call(self.calls.pre_start(effect))
                case effects.UnknownResource():
                    extra = {"pod": effect.pod, "container": effect.container, "resource_name": effect.resource_name}
                    log.info("pod requests a resource that no device plugin has registered yet", extra=extra)
                case effects.AssignedParts():
                    _report(effect)
                case effects.TakeList():
                    self._start_call(self._lists.take(effect))
                case _:
                    assert_never(effect)
        if self.manager.deadlines.are_changed:
            self._set_timer()
        self.effects_done.set()
        self.effects_done.clear()

    async def _register(self, resource_name: str, socket_name: str) -> None:
        # a plugin that outlives a restart may register again without checking its socket, which the restart removed
        socket = self.directory.path / socket_name
        await self._connect(resource_name, socket, self.directory.reachable(socket_name))

    async def connect(self, resource_name: str, socket: Path) -> PluginConnection:
        """A plugin that serves on this socket registers; closing its connection ends that. Raises PluginFailed."""
        try:
            return await self._connect(resource_name, socket, socket.name)
        except RegistrationRejected as exc:
            # the limit may be free again later: unlike an invalid name, this is worth a retry
            raise PluginFailed(resource_name, "Register", str(exc)) from exc

    async def _connect(
        self, resource_name: str, socket: Path, socket_name: str, ended_before: int = 0
    ) -> PluginConnection:
        """Raises PluginFailed or RegistrationRejected."""
        with self._admission.opening(resource_name, str(socket)):
            connection = await PluginConnection.open(resource_name, socket, socket_name, self._built_in)
        try:
            if self._is_ending:
                problem = "this device manager is stopping; register with the next one"
                raise PluginFailed(resource_name, "Register", problem)
            closing = self._admission.take(resource_name)
        except (PluginFailed, RegistrationRejected):
            await connection.aclose()
            raise
        connection.ended_before = ended_before
        metrics.REGISTRATIONS.labels(resource_name).inc()
        fields = {"resource_name": resource_name, "socket": socket.name}
        self._lines.log(logging.INFO, "device plugin registered", resource_name, **fields)
        self._adopt(connection, socket_name)
        await self._close(closing)
        return connection

    def bound_names(self) -> None:
        """Apply the bound on names, once all pods are known: unused names from before the bound lose their place."""
        if closing := self._admission.bound_names():
            self._start_call(self._close(closing))

    async def _close(self, connections: Iterable[PluginConnection]) -> None:
        for connection in connections:
            await connection.aclose()

    def _adopt(self, connection: PluginConnection, socket_name: str) -> None:
        resource_name = connection.resource_name
        endpoint = next(self._endpoints)
        self._connections[endpoint] = connection
        if connection.socket.parent == self.directory.path:
            self._sockets[endpoint] = PluginSocket(resource_name, socket_name)
            self._save()
        self._connected(endpoint, connection)
        sockets = self.manager.resources[resource_name].connections.sockets()
        if len(sockets) > 1:
            fields = {"resource_name": resource_name, "sockets": list(sockets)[:_MOST_SOCKETS]}
            event = "resource is served by several device plugins; the newest list counts"
            self._lines.log(logging.WARNING, event, resource_name, **fields)
        self._tasks.create_task(self._follow_plugin(endpoint, connection))
        connection.answers.on_change = partial(self._responsiveness_changed, endpoint, connection)
        if connection.options.holdings_required and resource_name not in self._holdings:
            self._holdings[resource_name] = HoldingsSync(self.manager, resource_name, self.newest, self.effects_done)
            self._tasks.create_task(self._sync_holdings(resource_name))

    async def _sync_holdings(self, resource_name: str) -> None:
        try:
            await retried("holdings", self._holdings[resource_name].run, resource_name=resource_name)
        finally:
            del self._holdings[resource_name]

    async def _follow_plugin(self, endpoint: int, connection: PluginConnection) -> None:
        extra = {"resource_name": connection.resource_name, "socket": connection.socket.name}
        reason, may_serve = "its stream ended", True
        asking = None
        if not connection.options.scope:
            # plugins of this process run as long as it runs
            asking = self._tasks.create_task(connection.answers.work(connection.ask))
        dialled_at = self.now()
        try:
            await self._lists.follow(endpoint, connection)
        except PluginFailed as exc:
            reason = str(exc)
        except Exception:
            # only this plugin may fail: an error that ends the agent would return at every start, when the plugin is dialled again
            reason, may_serve = "reading its device lists failed, a bug in this agent", False
            log.exception("device plugin dropped", extra=extra)
        finally:
            if asking is not None:
                asking.cancel()
            was_open = self._connections.pop(endpoint, None) is not None and not connection.is_closed
            self._lists.drop(endpoint)
            await connection.aclose()
        self._lines.log(logging.INFO, "device plugin disconnected", connection.resource_name, **extra, reason=reason)
        self.manager.table.disconnected(connection.resource_name, endpoint, self.now())
        self.settle()
        if self.now() - dialled_at > MOST_REDIAL_SECONDS:
            connection.ended_before = 0
        if may_serve and was_open:
            socket = self._sockets.get(endpoint)
            await self._redials.redial(connection, None if socket is None else self.directory.path / socket.name)
        self._lose(endpoint)

    async def _connect_again(self, lost: PluginConnection, socket_name: str) -> None:
        """Connect to the plugin, unless it is connected or its name has lost its place. Raises PluginFailed."""
        plugin, resource = (lost.socket, lost.resource_name), self.manager.resources.get(lost.resource_name)
        is_connected = any(plugin == (other.socket, other.resource_name) for other in self._connections.values())
        if self._is_ending or is_connected or resource is None or resource.presence.lost_to is not None:
            return
        try:
            await self._connect(lost.resource_name, lost.socket, socket_name, lost.ended_before + 1)
        except RegistrationRejected as exc:
            fields = {"resource_name": lost.resource_name, "error": str(exc)}
            self._lines.log(logging.WARNING, "device plugin may not be connected again", lost.resource_name, **fields)

    def _responsiveness_changed(self, endpoint: int, connection: PluginConnection, is_responsive: bool) -> None:
        """A plugin has stopped responding, or responds again. Its connection stays: some plugins never register again."""
        if endpoint not in self._connections:
            return  # its name has lost its place
        resource_name = connection.resource_name
        extra = {"resource_name": resource_name, "socket": connection.socket.name}
        if not is_responsive:
            event = "device plugin does not respond; none of its devices counts as healthy until it does"
            self._lines.log(logging.WARNING, event, resource_name, **extra)
            self.manager.table.disconnected(resource_name, endpoint, self.now(), is_silent=True)
            self.settle()
            return
        self._lines.log(logging.INFO, "device plugin responds again", resource_name, **extra)
        self._connected(endpoint, connection)

    def _connected(self, endpoint: int, connection: PluginConnection) -> None:
        name, options = connection.resource_name, connection.options
        metrics.begin(name, pre_start_required=options.pre_start_required)
        self.manager.connected(name, endpoint, options, self.now(), str(connection.socket))
        self.settle()

    def _lose(self, endpoint: int) -> None:
        """The plugin has gone, and not because this agent ends: the next start need not reconnect to it."""
        lost = self._sockets.pop(endpoint, None)
        if lost is not None:
            self._save()
            if lost not in self._sockets.values():
                self.directory.forget(lost.name)

    def _save(self) -> int:
        """Request a write, but not while allocations are being recovered: the next start would miss them."""
        return 0 if self.manager.is_recovering else self._writer.request()

    def _checkpoint(self) -> Checkpoint:
        return structs.replace(self.manager.checkpoint(), sockets=tuple(dict.fromkeys(self._sockets.values())))

    def _start_call(self, call: Coroutine[Any, Any, None]) -> None:
        """Start a call in a task, whose exception ends the agent. While the agent ends, the call is dropped."""
        try:
            self._tasks.create_task(call)
        except RuntimeError as exc:
            # The group takes no more tasks while it ends, and a retry may be due or a pod seen just then.
            call.close()
            log.debug("agent is ending; not calling the plugin", extra={"error": str(exc)})

    def _set_timer(self) -> None:
        self.manager.deadlines.are_changed = False
        deadline = self.manager.next_deadline()
        if self._timer is not None:
            if self._timer.when() == deadline:
                return
            self._timer.cancel()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self.manager.tick(self.now())
            self.settle()
            self._set_timer()
        except Exception as exc:
            # the event loop would only log it, and no deadline would ever come again
            if not self._failed.done():
                self._failed.set_exception(exc)


def _report(effect: effects.AssignedParts) -> None:
    metrics.ASSIGNED_PARTS.labels(effect.outcome).inc()
    if effect.outcome != USED:
        extra = {"pod": effect.pod, "resource_name": effect.resource_name, "outcome": effect.outcome}
        problem = {"error": effect.problem} if effect.problem else {}
        log.warning("the scheduler's assignment of parts was not taken; the agent chose", extra={**extra, **problem})
