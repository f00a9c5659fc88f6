"""How devices reach containers with --runtime nri: this agent is the allocator, and a plugin of the container runtime.

Puts together the handler that decides and the connection that asks it, and says what is published of both.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.devicemanager.state import CheckpointCorrupt
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR, read_checkpoint
from nodedevice_agent.nri.plugin import NriPlugin
from nodedevice_agent.runtime.connection_status import Injectable, RuntimeLink, with_runners
from nodedevice_agent.runtime.injector import Injector

log = logging.getLogger(__name__)


class NriBackend:
    """run() until cancelled. said: called when the condition of every resource may be another.

    grace_seconds: how long the runtime may be away before nothing is advertised any more.
    """

    notes = ""

    def __init__(
        self,
        host: PluginHost,
        socket: Path,
        index: str,
        kubelet_dir: Path,
        grace_seconds: float,
        said: Callable[[], None],
    ) -> None:
        self._manager = host.manager
        self._link = RuntimeLink(host.now(), grace_seconds)
        self._injector = Injector(host, self._link, said, KubeletResources(kubelet_dir))
        self._plugin = NriPlugin(self._injector, socket, index)
        self._without: set[tuple[str, str, str]] = set()
        # IDs of containers, and resource names
        self._running_on: set[tuple[str, str]] = set()

    async def run(self) -> None:
        try:
            await self._plugin.run()
        finally:
            self._injector.close()

    @property
    def is_settled(self) -> bool:
        """Whether it is known if there is a runtime; until then what was published last holds."""
        return self._link.said is not None

    def resource_changed(self, resource_name: str) -> None:
        """The runtime asks when it creates a container; nothing is announced to it."""

    def snapshot(self, resource_name: str) -> Snapshot:
        """With which containers run without their devices; each is told of once, as are those that run on with theirs."""
        self._tell_running_on(resource_name)
        now = snapshot(self._manager, resource_name, self._injector.events.not_injected)
        without = {(h.allocation.pod_uid, h.allocation.container, resource_name) for h in now.held if h.not_injected}
        without |= {(p.pending.pod_uid, p.pending.container, resource_name) for p in now.pending if p.not_injected}
        for pod_uid, container, _ in sorted(without - self._without):
            extra = {"pod_uid": pod_uid, "container": container, "resource_name": resource_name}
            log.warning("container runs without its devices; it has to be started anew", extra=extra)
        self._without = {one for one in self._without if one[2] != resource_name} | without
        metrics.CONTAINERS_WITHOUT.labels(resource_name).set(len(without))
        return now

    def injectable(self, now: Snapshot) -> Injectable | None:
        if self._link.said is None:
            return None
        return with_runners(self._link.said, now, self._injector.events.runs_on(now.resource_name))

    def _tell_running_on(self, resource_name: str) -> None:
        found = {(alive.id, resource_name): alive for alive in self._injector.events.runs_on(resource_name)}
        for one, alive in sorted(found.items()):
            if one not in self._running_on:
                extra = {
                    "container_id": alive.id,
                    "container": alive.container,
                    "pod_uid": alive.pod_uid,
                    "resource_name": resource_name,
                }
                log.error("container runs with devices that count as given back; stop it", extra=extra)
        self._running_on = {one for one in self._running_on if one[1] != resource_name} | found.keys()


class KubeletResources:
    """Names that the kubelet's own device manager has in its checkpoint, read again when the file is another."""

    def __init__(self, kubelet_dir: Path) -> None:
        self._kubelet_dir = kubelet_dir
        self._read: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    def __contains__(self, resource_name: object) -> bool:
        """False also where the checkpoint cannot be read: a pod held back is better than one without its device."""
        try:
            found = (self._kubelet_dir / PLUGIN_DIR / CHECKPOINT).stat()
            version = (found.st_mtime_ns, found.st_ino)
            if version != self._read:
                self._names = frozenset(read_checkpoint(self._kubelet_dir).registered)
                self._read = version
        except FileNotFoundError:
            self._names = frozenset()
        except (OSError, CheckpointCorrupt) as exc:
            log.warning("the kubelet's checkpoint cannot be read", extra={"error": str(exc)})
            self._names = frozenset()
        return resource_name in self._names
