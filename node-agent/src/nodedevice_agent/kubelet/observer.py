"""Observes the resources that the kubelet's own device manager serves, so that they are published too. Nothing is changed there.

The kubelet writes its checkpoint at each allocation and each list of a plugin: that triggers a look, and so does the end of a pod.
Otherwise there is one every half a minute. The devices' NUMA nodes and the names of pods come from its pod resources; without
these, nothing is shown.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from nodedevice_common.pacing import Backoff, jittered
from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint, CheckpointCorrupt
from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.errors import ApiRequestError
from nodedevice_agent.kubelet.attribution import KubeletState
from nodedevice_agent.kubelet.pod_resources import POD_RESOURCES, PodResourcesUnavailable, list_allocatable
from nodedevice_agent.kubelet.pod_rows import LIST_SECONDS, PodRows
from nodedevice_agent.kubelet.served import DevicesByID, KubeletDevices, ServedByKubelet
from nodedevice_agent.kubelet.state_reader import CHECKPOINT, PLUGIN_DIR, read_checkpoint
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 1.0
# several writes of its file, and then several calls, become one look
_TOGETHER_SECONDS: Final = 0.1
# The kubelet writes the Node's status every ten seconds, so then its capacity is that of the devices seen before.
_CAPACITY_SECONDS: Final = 12.0
# a free device that is not healthy may come or go, and nothing else shows it
_CAPACITY_AGAIN_SECONDS: Final = 600.0
_SPREAD: Final = 0.5


class Observer:
    """run() until cancelled; the pods of the node go to the same three methods as everywhere.

    publish: called with each resource that may have changed. capacity: reads the Node's, by name; raises ApiRequestError.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        served: ServedByKubelet,
        publish: Callable[[str], None],
        capacity: Callable[[], Awaitable[Mapping[str, int]]],
    ) -> None:
        self.served = served
        self._kubelet_dir = kubelet_dir
        self._checkpoint = kubelet_dir / PLUGIN_DIR / CHECKPOINT
        self._socket = kubelet_dir / POD_RESOURCES
        self._rows = PodRows(self._socket)
        self._publish = publish
        self._capacity = capacity
        self._now = asyncio.get_running_loop().time
        self._ended = asyncio.Event()
        self._file: FileIdentity | None = None
        # what was logged last: why pod resources cannot be used, and why the checkpoint cannot
        self._problems: dict[str, str] = {}
        self._is_answered = False
        self._healthy: Mapping[str, DevicesByID] = {}
        self._capacity_due = 0.0
        self._pauses = Backoff(_FIRST_PAUSE_SECONDS, LIST_SECONDS)

    async def run(self) -> None:
        with FileWatcher() as watcher:
            changes = watcher.subscribe()
            while True:
                changes.follow([self._checkpoint.parent])
                due = self._rows.list_due() if await self._look() else self._now() + self._pauses.next()
                await self._read_capacity()
                until = self._next_look(due)
                while self._now() < until:
                    changed = await self._next(changes.wait(until - self._now()))
                    # the kubelet may have made its directory only now
                    changes.follow([self._checkpoint.parent])
                    if self.served.is_outdated or self._checkpoint in changed or self._is_written():
                        await asyncio.sleep(_TOGETHER_SECONDS)
                        break

    def displace(self, resource_names: Iterable[str], by: str) -> None:
        """The places of those that the kubelet serves are that name's."""
        own = [name for name in resource_names if name in self.served.resources]
        self._do(self.served.displaced(own, by, self._now()))

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        self._rows.forget()
        self._do(self.served.pods_synced(pods, self._now()))

    def pod_seen(self, pod: Pod) -> None:
        if pod.has_ended:
            self._rows.pod_ended(pod)
        self._do(self.served.pod_seen(pod, self._now()))

    def pod_gone(self, pod_uid: str) -> None:
        known = self.served.pods.get(pod_uid)
        if known is not None:
            self._rows.pod_ended(known)
        self._do(self.served.pod_gone(pod_uid, self._now()))

    # -- internals --------------------------------------------------------------------------------------------------------

    def _do(self, effects: Iterable[Effect]) -> None:
        """Nothing is called or saved for what the kubelet serves."""
        for name in dict.fromkeys(effect.resource_name for effect in effects if isinstance(effect, Publish)):
            self._publish(name)
        if self.served.is_outdated:
            self._ended.set()

    async def _next(self, events: Awaitable[frozenset[Path]]) -> frozenset[Path]:
        """The next events of files; none where the end of a pod comes first."""
        changed, ended = asyncio.ensure_future(events), asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((changed, ended), return_when=asyncio.FIRST_COMPLETED)
            return changed.result() if changed.done() else frozenset()
        finally:
            self._ended.clear()
            changed.cancel()
            ended.cancel()
            await asyncio.gather(changed, ended, return_exceptions=True)

    def _next_look(self, due: float) -> float:
        """When to look although nothing happens. due: for the kubelet's answers. Without a device no capacity is read."""
        return min(due, max(self._capacity_due, self._now() + _FIRST_PAUSE_SECONDS)) if self._healthy else due

    def _is_written(self) -> bool:
        return self._file != file_identity(self._checkpoint)

    async def _look(self) -> bool:
        """Whether the kubelet answered."""
        # from before it is read: a write meanwhile gives it another identity
        self._file = file_identity(self._checkpoint)
        checkpoint = await self._read_checkpoint()
        self.served.is_outdated = False
        entries = checkpoint.allocations if checkpoint is not None else None
        healthy, problem = await self._list_healthy(checkpoint)
        if problem:
            # an old kubelet, or one that is away: List shows which
            self._rows.forget()
        try:
            rows = await self._rows.read(entries, self.served.pods, self._now())
        except PodResourcesUnavailable as exc:
            message = "the kubelet's pod resources cannot be used; what it serves is not shown, or not updated"
            self._report("pod resources", str(exc), message)
            return False
        self._report("pod resources")
        self._is_answered = True
        message = "the kubelet does not list allocatable devices; NUMA nodes of its devices are not shown"
        self._report("allocatable", problem, message)
        self._pauses.reset()
        found = KubeletDevices(healthy, are_names_complete=checkpoint is not None)
        before = self.served.without_place
        self._do(self.served.read(found, KubeletState(entries, rows), self._now()))
        if (count := self.served.without_place) not in (0, before):
            log.warning("resources of the kubelet are not shown: this node has too many names", extra={"count": count})
        self._do(self.served.tick(self._now()))
        if healthy != self._healthy:
            self._healthy = healthy
            # at the first look there is nothing to wait for
            self._capacity_due = min(self._capacity_due, self._now() + _CAPACITY_SECONDS)
        return True

    async def _read_checkpoint(self) -> Checkpoint | None:
        """None where it cannot be used: then names of pods are all there is."""
        try:
            # in a thread: the checksum covers every byte of the plugins' responses
            found = await in_thread(partial(read_checkpoint, self._kubelet_dir))
        except CheckpointCorrupt as exc:
            message = "the kubelet's checkpoint cannot be used; init containers that hold its devices are not shown"
            self._report("checkpoint", str(exc), message)
            return None
        self._report("checkpoint")
        return found

    async def _list_healthy(self, checkpoint: Checkpoint | None) -> tuple[Mapping[str, DevicesByID], str]:
        """With the names in the checkpoint: a resource without any healthy device is only there. And why they are its alone."""
        names = checkpoint.registered if checkpoint is not None else {}
        try:
            allocatable = await list_allocatable(self._socket)
        except PodResourcesUnavailable as exc:
            return {name: dict.fromkeys(ids, ()) for name, ids in names.items()}, str(exc)
        return {**{name: {} for name in names}, **allocatable}, ""

    async def _read_capacity(self) -> None:
        if self._now() < self._capacity_due or not self._healthy:
            return
        self._capacity_due = self._now() + jittered(_CAPACITY_AGAIN_SECONDS, _SPREAD, random.random())
        try:
            found = await self._capacity()
        except ApiRequestError as exc:
            log.debug("cannot read the Node's capacity", extra={"error": str(exc)})
            self._capacity_due = self._now() + LIST_SECONDS
            return
        self._do(self.served.capacity_is(found, self._now()))

    def _report(self, what: str, problem: str = "", message: str = "") -> None:
        """Log a problem once, and its end."""
        before = self._problems.get(what, "")
        self._problems[what] = problem
        if problem and not before:
            # before its first answer: there may be no kubelet that has this, and that is no fault
            level = logging.WARNING if self._is_answered else logging.INFO
            log.log(level, message, extra={"path": str(self._kubelet_dir), "error": problem})
        elif before and not problem:
            log.info("the kubelet answers again", extra={"what": what})
