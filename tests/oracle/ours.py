"""Our device manager as a maker: the agent's plugin half, whole, over real sockets; only the API server is left out.

Pods arrive as the watch would report them, and what would be published is read from the same snapshot.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_api.device_ids import original_id
from nodedevice_api.names import Reason

from tests.oracle.maker import PATIENCE_SECONDS, Held, Numbers, Verdict, Why, container_name
from tests.oracle.steps import Ctr, Machine

_WHY = {
    Reason.NOT_ENOUGH_DEVICES: Why.LACKING,
    Reason.ENDPOINT_STOPPED: Why.LACKING,
    Reason.DEVICE_LIST_PENDING: Why.LACKING,
    Reason.TOPOLOGY_AFFINITY: Why.TOPOLOGY,
    Reason.CHANGED_REQUEST: Why.CHANGED,
    Reason.ALLOCATE_FAILED: Why.PLUGIN,
}

# Sequences change a device's health faster than anything real; what damping is for has tests of its own.
_UNDAMPED = FlapDampingLimits(changes=0)


class _Observed(DeviceManager):
    """Counts the events of plugins, so that a test waits for it instead of guessing when."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lists: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.observed = asyncio.Event()
        end = self.table.disconnected

        def disconnected(resource_name: str, *args: Any, **options: Any) -> None:
            self.ends[resource_name] += 1
            self.observed.set()
            end(resource_name, *args, **options)

        self.table.disconnected = disconnected  # type: ignore[method-assign, assignment]

    def listed(self, resource_name: str, endpoint: int, listed: ListedDevices, now: float) -> None:
        self.lists[resource_name] += 1
        self.observed.set()
        super().listed(resource_name, endpoint, listed, now)


class Ours:
    """A maker."""

    def __init__(self, plugin_dir: Path, state_dir: Path) -> None:
        self.plugin_dir = plugin_dir
        self.checkpoint = state_dir / checkpoint_file.FILE_NAME
        self._state_dir = state_dir
        self._manager: _Observed
        self._host: PluginHost
        self._directory: PluginDirectory
        self._running: asyncio.Task[None] | None = None
        self._started: asyncio.Event
        self._restored: list[Pod] = []
        self._is_restarting = False

    async def start(self, machine: Machine, running: Sequence[tuple[str, str]] | None = None) -> None:
        self._is_restarting = running is not None
        self._restored = []
        self._directory = PluginDirectory.take(self.plugin_dir)
        now = asyncio.get_running_loop().time()
        read = checkpoint_file.read(self._state_dir)
        self._manager = _Observed(now, read, topology=_topology(machine), flapping=_UNDAMPED)
        self._host = PluginHost(self._manager, self._state_dir, self._directory, lambda _: self._manager.observed.set())
        self._started = asyncio.Event()
        self._running = asyncio.create_task(self._run())
        await self._until(self._started.is_set)

    async def stop(self) -> None:
        running, self._running = self._running, None
        assert running is not None
        running.cancel()
        await asyncio.wait([running])
        self._directory.close()

    async def all_pods_known(self) -> None:
        if self._is_restarting:
            self._is_restarting = False
            self._manager.pod_events.synced(self._restored, self._host.now())
            self._host.settle()

    async def listed(self, resource: str, count: int) -> None:
        await self._until(lambda: self._manager.lists[resource] >= count)

    async def ended(self, resource: str, count: int) -> None:
        await self._until(lambda: self._manager.ends[resource] >= count)

    async def admit(self, uid: str, containers: Sequence[Ctr]) -> Verdict:
        pod = _pod(uid, containers)
        if self._is_restarting:
            # the watch reports all of them at once, when all_pods_known
            self._restored.append(pod)
            return Verdict(True)
        self._manager.pod_events.seen(pod, self._host.now())
        self._host.settle()
        await self._until(lambda: self._pending(uid) is not None or self._is_served(pod))
        waiting = self._pending(uid)
        if waiting is None:
            return Verdict(True)
        return Verdict(False, _WHY[waiting.reason], waiting.message)

    async def served(self, uid: str) -> None:
        """Wait until a pod that waits has all it asked for."""
        pod = self._manager.pod(uid)
        assert pod is not None
        await self._until(lambda: self._is_served(pod))

    async def end(self, uid: str) -> None:
        self._manager.pod_events.gone(uid, self._host.now())
        self._host.settle()

    async def held(self) -> Held:
        return {
            (a.pod_uid, a.container, a.resource_name): {
                original_id(device_id): tuple(
                    sorted(n for n, ids in a.ids_by_numa.items() if n >= 0 and device_id in ids)
                )
                for device_id in a.device_ids
            }
            for a in self._manager.book
        }

    async def numbers(self) -> Numbers:
        """Capacity as the kubelet would count it: what the plugin lists, without held devices that it no longer does."""
        found = {}
        for name in self._manager.resources:
            now = snapshot(self._manager, name)
            missing = self._manager.resources[name].use.holders.keys() - self._manager.resources[name].devices.keys()
            found[name] = (now.total - len(missing), now.healthy)
        return found

    def snapshot(self, resource: str) -> Any:
        """What would be published of a resource."""
        return snapshot(self._manager, resource)

    def _pending(self, uid: str) -> PendingAllocation | None:
        found = (w for name in self._manager.resources for w in self._manager.pending(name) if w.pod_uid == uid)
        return next(found, None)

    def _is_served(self, pod: Pod) -> bool:
        """All of it that is known here is committed."""
        known = (need for need in pod.device_requests if need.resource_name in self._manager.resources)
        return all(self._manager.book.of(pod.uid, need.container, need.resource_name) for need in known)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._host.start(tasks)
                self._started.set()
                self._manager.observed.set()
        finally:
            await self._host.drain()

    async def _until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                if self._running is not None and self._running.done():
                    await self._running
                self._manager.observed.clear()
                await self._manager.observed.wait()


def _topology(machine: Machine) -> Topology:
    return Topology(TopologyPolicy(machine.policy), TopologyScope(machine.scope), machine.numa)


def _pod(uid: str, containers: Sequence[Ctr]) -> Pod:
    return Pod(
        uid,
        "default",
        uid,
        tuple(
            Container(container_name(index), ContainerKind(ctr.kind), {n: c for n, c in ctr.limits.items() if c})
            for index, ctr in enumerate(containers)
        ),
    )
