"""Publishes each resource of this node as a NodeDevice object: snapshot, status, server-side apply.

Receives the device manager's effect Publish, and owns the objects that are kept in the API for it.
"""

import asyncio
from typing import Any, Protocol

from nodedevice_agent import __version__, metrics
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.status import node_device_status
from nodedevice_agent.metrics import AgentHealth


class Backend(Protocol):
    """How devices reach containers, as far as it decides what is published."""

    @property
    def is_settled(self) -> bool:
        """False while the backend does not know its own state yet: the last published status stays."""

    @property
    def notes(self) -> str:
        """A problem that an administrator should know of; empty when there is none."""

    def resource_changed(self, resource_name: str) -> None:
        """The resource's devices or allocations may have changed."""

    def snapshot(self, resource_name: str) -> Snapshot:
        """The resource, with what the backend knows of its containers."""

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        """Status, reason and message of the condition Injectable; None where nothing is injected."""


class RecordOnly:
    """The backend of --runtime none: devices are counted and recorded, and do not reach containers."""

    is_settled = True
    notes = ""

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager

    def resource_changed(self, resource_name: str) -> None:
        """Nobody else is served."""

    def snapshot(self, resource_name: str) -> Snapshot:
        return snapshot(self._manager, resource_name)

    def injectable(self, now: Snapshot) -> None:
        return None


class Publisher:
    """One node's NodeDevice objects.

    start() once the plugin host and the backend exist; both publish through this, so it is made before them.
    notes: a problem of the start that the condition Registered shows, such as an unreadable checkpoint.
    """

    def __init__(self, cluster: KubeClient, node_name: str, health: AgentHealth, runtime: str, notes: str = "") -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._health = health
        self._runtime = runtime
        self._notes = notes
        self._objects: dict[str, NodeDeviceSync] = {}
        self._host: PluginHost
        self._backend: Backend
        self._tasks: asyncio.TaskGroup

    def start(self, tasks: asyncio.TaskGroup, host: PluginHost, backend: Backend) -> None:
        """From here on resources can be published; the objects are kept by tasks of that group."""
        self._tasks, self._host, self._backend = tasks, host, backend

    def publish_all(self) -> None:
        """Every resource that the device manager knows."""
        for resource_name in self._host.manager.resources:
            self.publish(resource_name)

    def publish(self, resource_name: str) -> None:
        """The effect Publish: the resource's snapshot may have changed."""
        found = self._objects.get(resource_name)
        if found is None:
            found = self._objects[resource_name] = NodeDeviceSync(self._cluster, self._node_name, resource_name, self)
            self._tasks.create_task(found.run())
        found.touch()
        self._backend.resource_changed(resource_name)

    def refresh(self, resource_name: str) -> None:
        """The status of this resource may have changed, and nothing of the resource itself."""
        found = self._objects.get(resource_name)
        if found is not None:
            found.touch()

    def refresh_all(self) -> None:
        for found in self._objects.values():
            found.touch()

    # -- for each NodeDevice: its StatusSource ------------------------------------------------------------------------

    async def saved(self) -> None:
        await self._host.saved()

    def desired_status(self, resource_name: str, observed: dict[str, Any], wall_time: str) -> dict[str, Any] | None:
        manager, backend = self._host.manager, self._backend
        if is_settling(manager, resource_name) or not self._health.is_ready("pods") or not backend.is_settled:
            return None
        now = backend.snapshot(resource_name)
        metrics.observe(now)
        return node_device_status(
            now,
            observed,
            wall_time=wall_time,
            version=__version__,
            runtime=self._runtime,
            notes=self._notes or backend.notes,
            injectable=backend.injectable(now),
        )

    def cordoned(self, resource_name: str, device_ids: frozenset[str]) -> None:
        host = self._host
        host.do(host.manager.cordoned(resource_name, device_ids, host.now()))
