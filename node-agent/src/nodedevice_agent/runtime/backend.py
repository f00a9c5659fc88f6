"""The backend of --runtime nri: this agent is the allocator, and an NRI plugin of the container runtime.

Composes the handler that decides and the connection that calls it, and reports both for publishing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.allocations import CheckpointCorrupt
from nodedevice_agent.devicemanager.runtime import ContainerInstance
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR, read_checkpoint
from nodedevice_agent.nri.plugin import NriPlugin
from nodedevice_agent.runtime.connection_status import ConnectionStatus, Injectable, injectable
from nodedevice_agent.runtime.injector import Injector

log = logging.getLogger(__name__)


class NriBackend:
    """run() until cancelled. on_change: called when the condition Injectable of every resource may have changed.

    grace_seconds: how long the runtime may be disconnected before nothing is advertised any more.
    """

    notes = ""

    def __init__(
        self,
        host: PluginHost,
        socket: Path,
        index: str,
        kubelet_dir: Path,
        grace_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        self._manager = host.manager
        self._status = ConnectionStatus(host.now(), grace_seconds)
        self._injector = Injector(host, self._status, on_change, KubeletResources(kubelet_dir))
        self._plugin = NriPlugin(self._injector, socket, index)
        # logged, by resource: pod UID and container name; and container ID
        self._not_injected: dict[str, set[tuple[str, str]]] = {}
        self._using_released: dict[str, set[str]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._injector.run())
            await self._plugin.run()

    @property
    def is_settled(self) -> bool:
        """Whether the state of the connection is known; until then the last published status stays."""
        return self._status.condition is not None

    def resource_changed(self, resource_name: str) -> None:
        """Nothing to do: the runtime calls when it creates a container."""

    def snapshot(self, resource_name: str) -> Snapshot:
        """With the containers that run without their devices."""
        return snapshot(self._manager, resource_name, self._injector.events.not_injected)

    def injectable(self, now: Snapshot) -> Injectable | None:
        """Logs each container once that runs without its devices, and each that uses released ones."""
        name, condition = now.resource_name, self._status.condition
        without = {(h.allocation.pod_uid, h.allocation.container) for h in now.held if h.not_injected}
        without |= {(p.pending.pod_uid, p.pending.container) for p in now.pending if p.not_injected}
        for pod_uid, container in sorted(without - self._not_injected.get(name, set())):
            extra = {"pod_uid": pod_uid, "container": container, "resource_name": name}
            log.warning("container runs without its devices; restart its pod", extra=extra)
        self._not_injected[name] = without
        metrics.CONTAINERS_WITHOUT.labels(name).set(len(without))
        using_released = self._injector.events.using_released(name) if self._manager.containers.by_pod else ()
        self._log_using_released(name, using_released)
        if condition is None or not (without or using_released):
            return condition
        return injectable(condition, now, using_released)

    def _log_using_released(self, resource_name: str, found: Iterable[ContainerInstance]) -> None:
        by_id = {instance.id: instance for instance in found}
        for container_id in sorted(by_id.keys() - self._using_released.get(resource_name, set())):
            instance = by_id[container_id]
            extra = {
                "container_id": container_id,
                "container": instance.container,
                "pod_uid": instance.pod_uid,
                "resource_name": resource_name,
            }
            log.error("container uses devices that were released; stop it", extra=extra)
        self._using_released[resource_name] = set(by_id)


class KubeletResources:
    """Names that the kubelet's own device manager has in its checkpoint, read again when the file changes."""

    def __init__(self, kubelet_dir: Path) -> None:
        self._kubelet_dir = kubelet_dir
        self._read: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    def __contains__(self, resource_name: object) -> bool:
        """False also if the checkpoint is unreadable: holding a pod back is better than starting it without its device."""
        try:
            found = (self._kubelet_dir / PLUGIN_DIR / CHECKPOINT).stat()
            version = (found.st_mtime_ns, found.st_ino)
            if version != self._read:
                self._names = frozenset(read_checkpoint(self._kubelet_dir).registered)
                self._read = version
        except FileNotFoundError:
            self._names = frozenset()
        except (OSError, CheckpointCorrupt) as exc:
            log.warning("cannot read the kubelet's checkpoint", extra={"error": str(exc)})
            self._names = frozenset()
        return resource_name in self._names
