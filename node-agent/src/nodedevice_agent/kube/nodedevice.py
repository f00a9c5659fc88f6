"""Publishes each resource of this node as a NodeDevice object, and reads the administrator's cordons from it.

An object is watched by its name (the API server indexes names, not fields), or visited now and then (parked.py). Its observed
status is compared with the desired one before a write, so that a restart writes nothing and an edit by another client is undone.
The first change is written immediately; more changes within the pause are written together. A failed write is retried with growing
pauses, and immediately once the watch is connected again or the object was deleted.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

from msgspec import to_builtins
from nodedevice_api.names import Reason, node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_common.tasks import retried

from nodedevice_agent import __version__, metrics
from nodedevice_agent.devicemanager.places import MAX_NAMES
from nodedevice_agent.devicemanager.resources.cordons import NO_CORDONS, Cordon
from nodedevice_agent.devicemanager.resources.resource import EndpointState, Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import ApiNotFound, ApiRefused, ApiRequestError
from nodedevice_agent.kube.client import KubeClient, log_failure, pause_seconds
from nodedevice_agent.kube.contention import Contention
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.observed import Json, cordons_of, observed_spec, observed_status
from nodedevice_agent.kube.parked import MOST_WATCHED, Parked, is_served, to_park
from nodedevice_agent.kube.served import Served, ServedStatus
from nodedevice_agent.kube.status import is_bulk, is_loss, node_device_status, owned
from nodedevice_agent.kube.watch_state import number
from nodedevice_agent.kube.write_queue import WriteQueue

log = logging.getLogger(__name__)

# the name of the watch of this node's pods; those of NodeDevices have their names, which have a dot
PODS = "pods"
PAUSE_SECONDS = 0.05
# A write costs the API server by the object's size: with more devices listed, changes are batched for longer.
_PAUSE_SECONDS_PER_DEVICE = 0.002
_REFUSED_PAUSE_SECONDS = 60.0
# writes without a response that are remembered: the watch may report them late, and they are our own
_MOST_SENT = 3
# of watches, in /readyz
_MOST_NAMED = 3

_ADVERTISED = (
    "Unknown",
    Reason.RUNTIME_NONE,
    "devices are advertised and recorded, and containers get nothing (--runtime none --advertise-without-injection)",
)


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

    def resource_forgotten(self, resource_name: str) -> None:
        """The resource is not known any more."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether a container runs without this resource that it requested."""

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        """Status, reason and message of the condition Injectable; None where nothing is injected."""


class RecordOnly:
    """The backend of --runtime none: devices are counted and recorded, and do not reach containers.

    advertises: whether the administrator wants them advertised all the same.
    """

    is_settled = True
    notes = ""

    def __init__(self, *, advertises: bool = False) -> None:
        self._advertises = advertises

    def resource_changed(self, resource_name: str) -> None:
        """Nobody else is served."""

    def resource_forgotten(self, resource_name: str) -> None:
        """Nothing is remembered."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        return False

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        return _ADVERTISED if self._advertises else None


class Publisher:
    """One node's NodeDevice objects, and what their statuses are made of.

    start() once the plugin host and the backend exist; both publish through this, so it is made before them.
    notes: a problem of the start that the condition Registered shows, such as an unreadable checkpoint.
    """

    def __init__(self, cluster: KubeClient, node_name: str, runtime: str, notes: str = "") -> None:
        self.cluster = cluster
        self.watches = Watches(cluster)
        self.writes = WriteQueue()
        self.node_name = node_name
        # set with the first list of this node's pods; until then the last published statuses stay
        self.are_pods_known = False
        self._runtime = runtime
        self._notes = notes
        self._objects: dict[str, NodeDeviceSync] = {}
        # of these, those that are not watched yet: there are no more NodeDevices and watches than a node may have names
        self._waiting: dict[str, NodeDeviceSync] = {}
        # and those that nobody needs
        self._parked = Parked(self._visit, self.watches.clock)
        self._stale_watches: frozenset[str] = frozenset()
        self._host: PluginHost
        self._backend: Backend
        self._tasks: asyncio.TaskGroup
        # what the kubelet serves, where that is published too
        self._served: ServedStatus | None = None

    def start(self, tasks: asyncio.TaskGroup, host: PluginHost, backend: Backend, served: Served | None = None) -> None:
        """From here on resources can be published; the objects are kept by tasks of that group."""
        self._tasks, self._host, self._backend = tasks, host, backend
        if served is not None:
            self._served = ServedStatus(served, host.manager, self._runtime)

    def publish(self, resource_name: str) -> None:
        """The effect Publish: the resource's snapshot may have changed."""
        self.publish_served(resource_name)
        self._backend.resource_changed(resource_name)

    def publish_served(self, resource_name: str) -> None:
        """The same for a resource that the kubelet serves."""
        if resource_name in self._parked:
            if not is_served(resource_name, self._known()):
                # the next visit shows it
                return
            self._unpark(resource_name)
        found = self._objects.get(resource_name)
        if found is None:
            found = NodeDeviceSync(self, resource_name)
            self._objects[resource_name] = self._waiting[resource_name] = found
            self._begin()
        found.touch()

    def refresh(self, resource_name: str) -> None:
        """The status of this resource may have changed, and nothing of the resource itself."""
        found = self._objects.get(resource_name)
        if found is not None:
            found.touch()

    def refresh_all(self) -> None:
        for found in self._objects.values():
            found.touch()

    def forget(self, resource_name: str) -> bool:
        """Its object does not exist: forget the resource if its plugin is gone and no pod needs it; whether that was done."""
        was_known = resource_name in self._host.manager.resources
        if not self._host.manager.forget(resource_name):
            return False
        if was_known:
            self._backend.resource_forgotten(resource_name)
        if self._served is not None and not self._served.forget(resource_name):
            return False
        if resource_name in self._objects or self._parked.remove(resource_name):
            self._stop(resource_name)
            metrics.forget(resource_name)
            log.info("resource forgotten: its plugin is gone", extra={"resource_name": resource_name})
            self._begin()
        return True

    def _begin(self) -> None:
        """Watch those that wait, as many as there is room for; first those whose plugin is connected."""
        while self._waiting and len(self._objects) - len(self._waiting) + len(self._parked) < MAX_NAMES:
            known = self._host.manager.resources
            running = (name for name in self._waiting if name in known and known[name].state is EndpointState.RUNNING)
            name = next(running, None) or next(iter(self._waiting))
            self._tasks.create_task(retried("nodedevice", self._waiting.pop(name).run, resource_name=name))

    def _stop(self, resource_name: str) -> None:
        found = self._objects.pop(resource_name, None)
        if found is not None:
            found.stop()
        self._waiting.pop(resource_name, None)

    # -- without a watch ------------------------------------------------------------------------------------------------

    def park(self) -> None:
        """Now and then: find out which names nobody needs, and which of those that are parked somebody does."""
        if len(self._objects) + len(self._parked) <= MOST_WATCHED:
            return
        names = dict.fromkeys(name for known in self._known() for name in known)
        chosen = to_park(names, self._host.manager.places.taken(), self._known(), self._host.now())
        for name in self._parked.names():
            if name not in chosen and name in names:
                self._unpark(name)
                self.publish_served(name)
        for name in chosen:
            if name in self._objects and name not in self._waiting and self._objects[name].is_settled:
                self._stop(name)
                self._parked.add(name)
                metrics.forget(name)
        if len(self._parked) and not self._parked.is_worked:
            self._parked.is_worked = True
            self._tasks.create_task(retried("parked nodedevices", self._parked.work))

    def _unpark(self, resource_name: str) -> None:
        """It is watched again; what a person has changed since its last visit is not known before its first list."""
        self._parked.remove(resource_name)
        self._host.manager.cordons_outdated(resource_name)

    async def _visit(self, resource_name: str) -> None:
        await NodeDeviceSync(self, resource_name).visit()
        if resource_name in self._parked:
            metrics.forget(resource_name)

    def is_parked(self, resource_name: str) -> bool:
        return resource_name in self._parked

    def _known(self) -> list[Mapping[str, Resource]]:
        """The resources of each device manager."""
        here = self._host.manager.resources
        return [here] if self._served is None else [here, self._served.resources]

    def poll_watches(self) -> str:
        """Publish which watches are stale, where that has changed. Returns what is wrong; empty when nothing is."""
        stale = self.watches.stale()
        if stale != self._stale_watches:
            if stale:
                log.warning("watches are stale; changes may be missed", extra={"watches": sorted(stale)})
            else:
                log.info("watches are current again")
            self._stale_watches = stale
            metrics.WATCHES_STALE.set(len(stale))
            self.refresh_all()
        named = sorted(stale)
        return f"stale: {', '.join(named[:_MOST_NAMED])}{', …' if len(named) > _MOST_NAMED else ''}" if named else ""

    # -- for each NodeDevice --------------------------------------------------------------------------------------------

    async def saved(self) -> None:
        """Wait until every allocation so far is on disk: before that none may be published."""
        await self._host.saved()

    def desired_status(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> NodeDeviceStatus | None:
        """The status to be written over the observed one; None while the last published one stays."""
        if not self.are_pods_known:
            return None
        is_watch_stale = not self._stale_watches.isdisjoint((PODS, node_device_name(self.node_name, resource_name)))
        if self._served is not None and self._served.has(resource_name):
            return self._served.status(
                resource_name, observed, wall_time, self._host.now(), is_watch_stale=is_watch_stale
            )
        manager, backend = self._host.manager, self._backend
        if resource_name not in manager.resources or is_settling(manager, resource_name) or not backend.is_settled:
            return None
        now = snapshot(manager, resource_name, backend.not_injected)
        metrics.observe(now)
        return node_device_status(
            now,
            observed,
            wall_time=wall_time,
            version=__version__,
            runtime=self._runtime,
            unsaved=self._host.unsaved,
            notes=self._notes or backend.notes,
            injectable=backend.injectable(now),
            is_watch_stale=is_watch_stale,
        )

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """All cordons in the NodeDevice of that UID, by device ID; uid "" where there is none."""
        if self._served is not None:
            self._served.cordoned(resource_name, in_spec)
        manager = self._host.manager
        before = manager.cordons.get(resource_name, NO_CORDONS).remembered
        self._host.do(manager.cordoned(resource_name, uid, in_spec, self._host.now()))
        after = manager.cordons.get(resource_name, NO_CORDONS).remembered
        if after.keys() - before.keys():
            extra = {"resource_name": resource_name, "device_ids": sorted(after)[:16]}
            log.warning("NodeDevice with cordons was deleted; keeping them", extra=extra)


class NodeDeviceSync:
    """One resource's object. run() until stop(); touch() when something may have changed."""

    def __init__(self, publisher: Publisher, resource_name: str) -> None:
        self._publisher = publisher
        self._cluster = publisher.cluster
        self._node_name = publisher.node_name
        self._resource_name = resource_name
        self._name = node_device_name(publisher.node_name, resource_name)
        self._dirty = asyncio.Event()
        self._synced = asyncio.Event()
        # the API server responds again, or the object is gone: ends the pause after a failure
        self._hurry = asyncio.Event()
        self._stopped = asyncio.Event()
        self._observed: Json | None = None
        self._version = 0
        # our own statuses: the last one known to be stored, then those sent since; empty while none is known
        self._ours: tuple[Json, ...] = ()
        self._is_owned = True
        self._contention, self._writes = Contention(self._name), publisher.writes
        self._share = self._writes.share(self._on_turn)
        # since when a change may be unpublished (monotonic seconds)
        self._touched_at: float | None = None

    def touch(self) -> None:
        if self._touched_at is None:
            self._touched_at = time.monotonic()
        self._dirty.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            fields = {"metadata.name": self._name}
            watch = self._publisher.watches.follow(self._name, NodeDeviceObject, fields, self)
            running = [group.create_task(watch), group.create_task(self._write())]
            await self._stopped.wait()
            for task in running:
                task.cancel()

    async def visit(self) -> None:
        """Instead of run(), once: read the object, and write its status if that differs and may be written now."""
        try:
            objects, version = await self._publisher.watches.list_once(NodeDeviceObject, {"metadata.name": self._name})
            self.synced(objects, number(version))
            # else it is gone, or watched by another one
            if self._publisher.is_parked(self._resource_name):
                await self._publish()
        except ApiRequestError as exc:
            log.debug("parked NodeDevice not visited", extra={"nodedevice": self._name, "error": str(exc)})
        finally:
            self._writes.leave(self._share)

    @property
    def is_settled(self) -> bool:
        """Whether it has been read, and nothing waits to be written."""
        return self._synced.is_set() and self._touched_at is None

    def stop(self) -> None:
        self._writes.leave(self._share)
        self._stopped.set()

    def _on_turn(self) -> None:
        self._dirty.set()
        self._hurry.set()

    # -- the observed object --------------------------------------------------------------------------------------------

    @property
    def known_version(self) -> int:
        return self._version

    def synced(self, objects: list[NodeDeviceObject], version: int) -> None:
        if self._version <= version:
            if any(_version(found) < self._version for found in objects):
                # the API server was restored from a backup: what we wrote since is lost, and nobody edited it
                self._ours = ()
            self._version = 0
        self._seen(objects[0] if objects else None)
        self._synced.set()
        self._hurry.set()

    def updated(self, found: NodeDeviceObject) -> None:
        self._seen(found)

    def deleted(self, found: NodeDeviceObject) -> None:
        self._seen(None)

    def _seen(self, found: NodeDeviceObject | None) -> None:
        if found is not None and _version(found) < self._version:
            # the event of an earlier write of ours, after the response to a later one
            return
        if found is None and self._publisher.forget(self._resource_name):
            return
        if found is None:
            self._ours = ()
            self._hurry.set()
        elif self._is_edited(found.status):
            self._contention.edited()
            # counted once, until the status is restored
            self._ours = ()
        self._is_owned = found is None or _has_owner(found, self._node_name)
        self._observed = found.status if found is not None else None
        uid, spec = (found.metadata.uid or "", found.spec) if found is not None else ("", {})
        self._publisher.cordoned(self._resource_name, uid, cordons_of(observed_spec(spec).cordoned_devices))
        self.touch()

    def _is_edited(self, status: Json) -> bool:
        """Whether another client wrote it. Our own write may be observed before its response; a new object has no status."""
        if not self._ours or not status or status == self._observed:
            return False
        return all(owned(status, ours) != ours for ours in self._ours)

    # -- the desired object ---------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        await self._synced.wait()
        failures, is_logged = 0, False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._hurry.clear()
            pause = 0.0
            # changes from here on are published by the next iteration
            touched_at, self._touched_at = self._touched_at, None
            try:
                if await self._publish():
                    if touched_at is not None:
                        metrics.PUBLISH_SECONDS.observe(time.monotonic() - touched_at)
                    pause = max(self._batch_seconds(), self._contention.pause_seconds())
                elif self._writes.is_waiting(self._share):
                    self._touched_at = touched_at
                    pause = self._batch_seconds()
                failures, is_logged = 0, False
            except ApiRequestError as exc:
                # the change is as old as before
                self._touched_at = touched_at
                self.touch()
                if isinstance(exc, ApiRefused):
                    # the same status would most likely be rejected again
                    extra = {"nodedevice": self._name, "error": str(exc)}
                    log.error("API server rejected the status; retrying in a minute", extra=extra)
                    pause = _REFUSED_PAUSE_SECONDS
                else:
                    failures += 1
                    is_logged = is_logged or log_failure("status write failed; retrying", exc, nodedevice=self._name)
                    pause = pause_seconds(failures)
            await self._pause(pause)

    def _batch_seconds(self) -> float:
        devices = (self._observed or {}).get("devices")
        listed = len(devices) if isinstance(devices, list) else 0
        return PAUSE_SECONDS + _PAUSE_SECONDS_PER_DEVICE * listed

    async def _pause(self, seconds: float) -> None:
        """The shortest pause always passes: a client that deletes the object each time does not get it back faster."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))
        if seconds > PAUSE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds - PAUSE_SECONDS):
                    await self._hurry.wait()

    async def _publish(self) -> bool:
        """Write the status if it differs from the observed one and it is its turn. Returns whether it was written."""
        await self._publisher.saved()
        if self._stopped.is_set():
            return False
        observed = self._observed
        before = observed_status(observed or {})
        wall_time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        desired = self._publisher.desired_status(self._resource_name, before, wall_time)
        status: Json | None = to_builtins(desired)
        is_stored = status is not None and owned(observed or {}, status) == status
        if desired is None or status is None or (is_stored and self._is_owned):
            self._writes.leave(self._share)
            self._ours = (status,) if status is not None else self._ours
            return False
        ranks = {"is_loss": is_loss(before, desired), "is_bulk": is_bulk(before, desired)}
        if not self._writes.may_write(self._share, **ranks):
            return False
        if observed is None or not self._is_owned:
            await self._create()
        if self._ours:
            self._ours = (self._ours[0], *self._ours[1:][-_MOST_SENT:], status)
        try:
            written = await self._apply(status)
        except ApiNotFound:
            # deleted a moment ago; the watch will report it as well
            if self._publisher.forget(self._resource_name):
                return False
            await self._create()
            written = await self._apply(status)
        self._observed, self._version, self._ours = written.status, _version(written), (status,)
        return True

    async def _create(self) -> None:
        self._writes.spend(self._share)
        uid = await self._cluster.node_uid(self._node_name)
        await self._cluster.create_node_device((self._node_name, uid), self._resource_name)
        event = "NodeDevice created" if self._is_owned else "NodeDevice owner reference restored"
        log.info(event, extra={"nodedevice": self._name})
        self._is_owned = True

    async def _apply(self, status: Json) -> NodeDeviceObject:
        began = time.perf_counter()
        written = await self._cluster.apply_status(self._name, status)
        log.debug("status written", extra={"nodedevice": self._name, "seconds": time.perf_counter() - began})
        return written


def _has_owner(found: NodeDeviceObject, node_name: str) -> bool:
    """Whether a Node of that name owns it. The garbage collector compares the UIDs."""
    owners = found.metadata.ownerReferences or ()
    return any(owner.get("kind") == "Node" and owner.get("name") == node_name for owner in owners)


def _version(found: NodeDeviceObject) -> int:
    return number(found.metadata.resourceVersion or "")
