"""The agent: brings what happens outside to the device manager, one event at a time, and carries out what it answers.

All of the manager's state lives in the event loop's thread. Calls to plugins run as tasks of their own, so that one that
hangs holds up nobody; what they bring back is an event again.
"""

import asyncio
import logging
import platform
from collections.abc import Coroutine, Iterable
from itertools import count
from pathlib import Path
from typing import Any, assert_never

from nodedevice_agent import __version__
from nodedevice_agent.core.checkpoint import CheckpointCorrupt
from nodedevice_agent.core.device_manager import DeviceManager
from nodedevice_agent.core.effects import AskPreferred, CallAllocate, Effect, PodNotServed, Publish, SaveCheckpoint
from nodedevice_agent.core.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.core.status import node_device_status
from nodedevice_agent.edges import checkpoint_file, metrics
from nodedevice_agent.edges.checkpoint_file import CheckpointWriter
from nodedevice_agent.edges.cluster import Cluster
from nodedevice_agent.edges.http import Health
from nodedevice_agent.edges.lease import keep_lease
from nodedevice_agent.edges.node_devices import NodeDevice
from nodedevice_agent.edges.plugin_connection import PluginConnection
from nodedevice_agent.edges.plugin_directory import PluginDirectory
from nodedevice_agent.edges.pods import watch_pods
from nodedevice_agent.edges.recovery import recover_allocations
from nodedevice_agent.edges.registration_server import RegistrationServer
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.settings import Settings

log = logging.getLogger(__name__)

_BEAT_SECONDS = 5.0
_DRAIN_SECONDS = 2.0


class Agent:
    """One node's agent. run() until cancelled."""

    def __init__(
        self, settings: Settings, state_dir: Path, directory: PluginDirectory, cluster: Cluster, health: Health
    ) -> None:
        self._settings = settings
        self._node_name = settings.node_name
        self._state_dir = state_dir
        self._directory = directory
        self._cluster = cluster
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._notes = ""
        self._manager = self._restored_manager()
        self._writer = CheckpointWriter(state_dir, self._manager.checkpoint)
        self._durable = 0
        self._connections: dict[int, tuple[str, PluginConnection]] = {}
        self._endpoints = count(1)
        self._objects: dict[str, NodeDevice] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        server = RegistrationServer(self._directory.registration_socket, self._connect)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                start = self._tasks.create_task
                start(self._writer.run())
                start(self._beat())
                for resource_name in self._manager.resources:
                    self._publish(resource_name)
                self._set_timer()
                await server.start()
                self._health.is_there("plugin directory")
                log.info("serving device plugins", extra={"directory": str(self._directory.path)})
                start(self._follow_cluster())
                start(self._keep_lease())
        finally:
            await self._drain(server)

    # -- the cluster ------------------------------------------------------------------------------------------------

    async def _follow_cluster(self) -> None:
        if self._manager.is_recovering:
            allocations = await recover_allocations(self._cluster, self._node_name)
            log.warning("allocations recovered from the API", extra={"allocations": len(allocations)})
            self._do(self._manager.recovered(allocations, self._now()))
        manager = self._manager
        await watch_pods(
            self._cluster,
            self._node_name,
            synced=lambda pods: self._synced(manager.pods_synced(pods, self._now())),
            seen=lambda pod: self._do(manager.pod_seen(pod, self._now())),
            gone=lambda uid: self._do(manager.pod_gone(uid, self._now())),
        )

    def _synced(self, effects: list[Effect]) -> None:
        self._health.is_there("pods")
        self._do(effects)
        for found in self._objects.values():
            found.touch()

    async def _keep_lease(self) -> None:
        namespace = self._settings.leases_namespace
        await keep_lease(self._cluster, namespace, self._node_name, platform.node(), self._lease_said)

    def _lease_said(self, is_renewed: bool) -> None:
        if is_renewed:
            self._health.is_there("api server")
        else:
            self._health.is_missing("api server", "the lease cannot be renewed")

    # -- plugins ------------------------------------------------------------------------------------------------------

    async def _connect(self, resource_name: str, socket_name: str) -> None:
        """A plugin registers. Raises PluginFailed."""
        connection = await PluginConnection.open(resource_name, self._directory.path / socket_name)
        endpoint = next(self._endpoints)
        self._connections[endpoint] = (socket_name, connection)
        metrics.REGISTRATIONS.labels(resource_name).inc()
        log.info("device plugin registered", extra={"resource_name": resource_name, "socket": socket_name})
        self._do(self._manager.connected(resource_name, endpoint, connection.options, self._now()))
        self._call(self._follow_plugin(endpoint, resource_name, socket_name, connection))

    async def _follow_plugin(
        self, endpoint: int, resource_name: str, socket_name: str, connection: PluginConnection
    ) -> None:
        said = ""
        why = "its stream ended"
        try:
            async for listed in connection.device_lists():
                if listed.refusal and listed.refusal != said:
                    log.error("device list", extra={"resource_name": resource_name, "error": listed.refusal})
                said = listed.refusal
                self._do(self._manager.listed(resource_name, endpoint, listed, self._now()))
                await self._replace(endpoint, resource_name, socket_name)
        except PluginFailed as exc:
            why = str(exc)
        finally:
            self._connections.pop(endpoint, None)
            await connection.close()
        log.info(
            "device plugin disconnected", extra={"resource_name": resource_name, "socket": socket_name, "why": why}
        )
        self._do(self._manager.disconnected(resource_name, endpoint, self._now()))

    async def _replace(self, endpoint: int, resource_name: str, socket_name: str) -> None:
        """A plugin that registered again from the same socket has one connection: the newest, once it lists devices."""
        for other, (name, connection) in list(self._connections.items()):
            if other < endpoint and name == socket_name and connection.resource_name == resource_name:
                await connection.close()

    async def _ask_preferred(self, effect: AskPreferred) -> None:
        advice: tuple[str, ...] = ()
        try:
            connection = self._connection(effect.endpoint, effect.resource_name, "GetPreferredAllocation")
            advice = await connection.preferred(effect.available, effect.must_include, effect.size)
        except PluginFailed as exc:
            log.warning("advice ignored", extra={"resource_name": effect.resource_name, "error": str(exc)})
        odd = sorted(set(advice) - set(effect.available))
        if odd or len(advice) > effect.size:
            extra = {
                "resource_name": effect.resource_name,
                "unknown": odd[:3],
                "given": len(advice),
                "asked": effect.size,
            }
            log.warning("advice is wrong and taken only as far as it makes sense", extra=extra)
        self._do(self._manager.preferred(effect.ticket, advice[: effect.size], self._now()))

    async def _allocate(self, effect: CallAllocate) -> None:
        try:
            connection = self._connection(effect.endpoint, effect.resource_name, "Allocate")
            with metrics.ALLOCATE_SECONDS.labels(effect.resource_name).time():
                response = await connection.allocate(effect.device_ids)
        except PluginFailed as exc:
            metrics.ALLOCATE_FAILED.labels(effect.resource_name).inc()
            log.error("allocation failed; it is tried again", extra={"error": str(exc)})
            self._do(self._manager.allocate_failed(effect.ticket, str(exc), self._now()))
            return
        log.info("allocated", extra={"resource_name": effect.resource_name, "device_ids": list(effect.device_ids)[:16]})
        self._do(self._manager.allocated(effect.ticket, response, self._now()))

    def _connection(self, endpoint: int, resource_name: str, call: str) -> PluginConnection:
        found = self._connections.get(endpoint)
        if found is None:
            raise PluginFailed(resource_name, call, "it is no longer connected")
        return found[1]

    # -- effects --------------------------------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish():
                    self._publish(effect.resource_name)
                case SaveCheckpoint():
                    number = self._writer.request()
                    self._durable = number if effect.durable else self._durable
                case AskPreferred():
                    self._call(self._ask_preferred(effect))
                case CallAllocate():
                    self._call(self._allocate(effect))
                case PodNotServed():
                    extra = {"pod": effect.pod, "container": effect.container, "resource_name": effect.resource_name}
                    log.info("a pod here asks for a resource that no device plugin has registered yet", extra=extra)
                case _:
                    assert_never(effect)
        self._set_timer()

    def _publish(self, resource_name: str) -> None:
        found = self._objects.get(resource_name)
        if found is None:
            found = self._objects[resource_name] = NodeDevice(
                self._cluster,
                self._node_name,
                resource_name,
                desired=lambda standing, wall_time: self._status(resource_name, standing, wall_time),
                cordoned=lambda ids: self._do(self._manager.cordoned(resource_name, ids, self._now())),
                saved=lambda: self._writer.flushed(self._durable),
            )
            self._tasks.create_task(found.run())
        found.touch()

    def _status(self, resource_name: str, standing: dict[str, Any], wall_time: str) -> dict[str, Any] | None:
        if is_settling(self._manager, resource_name) or not self._health.is_ready("pods"):
            return None
        now = snapshot(self._manager, resource_name)
        _measure(now)
        return node_device_status(
            now, standing, wall_time=wall_time, version=__version__, runtime=self._settings.runtime, notes=self._notes
        )

    # -- time, start and end ----------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._loop.time()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._manager.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._do(self._manager.tick(self._now()))

    async def _beat(self) -> None:
        while True:
            self._health.beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def _call(self, call: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _restored_manager(self) -> DeviceManager:
        """From the checkpoint; one that cannot be read is kept aside and what it held is asked of the API."""
        now = self._loop.time()
        try:
            checkpoint = checkpoint_file.read(self._state_dir)
        except CheckpointCorrupt as exc:
            aside = checkpoint_file.set_aside(self._state_dir)
            metrics.CHECKPOINT_UNREADABLE.set(1)
            self._notes = (
                f"the checkpoint could not be read ({exc}); it is kept as {aside.name}, "
                "and who holds what was taken from the API"
            )
            log.error(
                "checkpoint cannot be read; rebuilding from the API", extra={"error": str(exc), "kept_as": str(aside)}
            )
            return DeviceManager(now, is_recovering=True, waits_for_intent=True)
        if checkpoint is not None:
            log.info("checkpoint read", extra={"allocations": len(checkpoint.allocations)})
        return DeviceManager(now, checkpoint, waits_for_intent=True)

    async def _drain(self, server: RegistrationServer) -> None:
        """Nothing new comes in; what was decided is written. Plugins are left to notice that their socket is gone."""
        if self._timer is not None:
            self._timer.cancel()
        await server.stop()
        for _, connection in list(self._connections.values()):
            await connection.close()
        await asyncio.wait_for(self._writer.close(), _DRAIN_SECONDS)


def _measure(now: Snapshot) -> None:
    for state in ("total", "healthy", "cordoned", "allocated", "releasing", "available"):
        metrics.RESOURCE_DEVICES.labels(now.resource_name, state).set(getattr(now, state))
    metrics.PODS_WAITING.labels(now.resource_name).set(len(now.waiting))
