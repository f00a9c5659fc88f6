"""Publishes each resource of this node as a NodeDevice object: decides which objects exist, and makes their statuses."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nodedevice_api.names import Condition, node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_common.tasks import retried

from nodedevice_agent import __version__, metrics
from nodedevice_agent.delivery.contract import Delivery
from nodedevice_agent.devicemanager.records.cordons import NO_CORDONS, Cordon
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import is_settling, snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.conditions import ConditionValue, condition_of, with_condition
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.parked import MOST_WATCHED, Parked, is_served, to_park
from nodedevice_agent.kube.served_resources import Source, StatusMaker, status_maker
from nodedevice_agent.kube.write_queue import WriteQueue

log = logging.getLogger(__name__)

# the name of the watch of this node's pods; watches of NodeDevices have the object's name, which contains a dot
PODS = "pods"
# the most watches named in /readyz
_MOST_NAMED = 3


class OfferedTwice(Protocol):
    """Which devices two resources of this node offer. is_known: False until all sources were compared.

    conditions: by resource name. is_changed: set when a resource's devices or allocations may have changed.
    """

    is_known: bool
    conditions: dict[str, ConditionValue]
    is_changed: asyncio.Event


class Publisher:
    """Keeps the NodeDevice objects of one node. start() once the plugin host and the delivery exist: both publish through this.

    notes: a problem of the start that the condition Registered shows, such as an unreadable checkpoint.
    """

    def __init__(
        self, cluster: KubeClient, node_name: str, notes: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.cluster = cluster
        self.watches = Watches(cluster, clock)
        self.writes = WriteQueue(clock)
        self.node_name = node_name
        # set with the first list of this node's pods; until then the last published statuses stay
        self.are_pods_known = False
        self._notes = notes
        # of this node's Node, as read last; empty: to be read
        self._node_uid = ""
        self._objects: dict[str, NodeDeviceSync] = {}
        # the subset without a watch yet: NodeDevices and watches are limited by the number of names per node
        self._waiting: dict[str, NodeDeviceSync] = {}
        # the unused ones
        self._parked = Parked(self._visit, clock)
        self._has_parked = False
        self._stale_watches: frozenset[str] = frozenset()
        self._host: PluginHost
        self._delivery: Delivery
        self._tasks: asyncio.TaskGroup
        # other allocators on this node whose devices are published; a name belongs to the first one that has it
        self._sources: Sequence[Source] = ()
        self.offered_twice: OfferedTwice | None = None

    def start(
        self,
        tasks: asyncio.TaskGroup,
        host: PluginHost,
        delivery: Delivery,
        sources: Sequence[Source] = (),
    ) -> None:
        """Resources can be published from now on; the objects are kept by tasks of that group."""
        self._tasks, self._host, self._delivery, self._sources = tasks, host, delivery, sources

    def recovered(self, resource_name: str, status: NodeDeviceStatus) -> None:
        """Remember a NodeDevice of another allocator, after the agent's state was lost."""
        for source in self._sources:
            source.remember(resource_name, status)

    def publish(self, resource_name: str) -> None:
        """The effect Publish: the resource's snapshot may have changed."""
        self.publish_served(resource_name)
        self._delivery.resource_changed(resource_name)

    def publish_served(self, resource_name: str) -> None:
        """The same for a resource of another source."""
        if self.offered_twice is not None:
            self.offered_twice.is_changed.set()
        if resource_name in self._parked.due:
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
        """Forget a resource without an object whose plugin is gone and that no pod needs. Returns whether it did."""
        manager = self._host.manager
        was_known = resource_name in manager.resources
        manager.forget(resource_name)
        self._host.settle()
        if resource_name in manager.resources:
            return False
        if was_known:
            self._delivery.resource_forgotten(resource_name)
        forgotten = [source.forget(resource_name) for source in self._sources]
        if not all(forgotten):
            return False
        if resource_name in self._objects or self._parked.remove(resource_name):
            self._stop(resource_name)
            metrics.forget(resource_name)
            log.info("resource forgotten: its plugin is gone", extra={"resource_name": resource_name})
            self._begin()
        return True

    def _begin(self) -> None:
        """Start waiting watches up to the limit, first of names with a connected plugin."""
        while self._waiting and len(self._objects) - len(self._waiting) + len(self._parked.due) < MAX_NAMES:
            known = self._known()
            running = (name for name in self._waiting if is_served(name, known))
            name = next(running, None) or next(iter(self._waiting))
            self._tasks.create_task(retried("nodedevice", self._waiting.pop(name).run, resource_name=name))

    def _stop(self, resource_name: str) -> None:
        found = self._objects.pop(resource_name, None)
        if found is not None:
            found.stop()
        self._waiting.pop(resource_name, None)

    # -- without a watch ------------------------------------------------------------------------------------------------

    def park(self) -> None:
        """Park unused names and unpark names in use. Called from time to time."""
        if not self._parked.due and len(self._objects) <= MOST_WATCHED:
            return
        names = dict.fromkeys(name for known in self._known() for name in known)
        parked = [*self._parked.due]
        chosen = to_park(names, parked, self._host.manager.places.taken(), self._known(), self._host.now())
        for name in parked:
            if name not in chosen and name in names:
                self._unpark(name)
                self.publish_served(name)
        for name in chosen:
            # a waiting one has not been read
            if name in self._objects and self._objects[name].is_settled:
                self._stop(name)
                self._parked.add(name)
                self._has_parked = True
                metrics.forget(name)
        if self._parked.due and not self._parked.is_worked:
            self._parked.is_worked = True
            self._tasks.create_task(retried("parked nodedevices", self._parked.work))

    def has_parked(self) -> bool:
        """Whether a name was parked since the last call."""
        found, self._has_parked = self._has_parked, False
        return found

    def _unpark(self, resource_name: str) -> None:
        """Watch the object again. Edits since the last visit are unknown until the first list."""
        self._parked.remove(resource_name)
        self._host.manager.table.cordons_outdated(resource_name)

    async def _visit(self, resource_name: str) -> None:
        await NodeDeviceSync(self, resource_name).visit()
        if resource_name in self._parked.due:
            metrics.forget(resource_name)

    def is_parked(self, resource_name: str) -> bool:
        return resource_name in self._parked.due

    def _known(self) -> list[Mapping[str, Resource]]:
        return [self._host.manager.resources, *(source.resources for source in self._sources)]

    def poll_watches(self) -> str:
        """Publish changes of the set of stale watches. Returns the problem; empty if none is stale."""
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

    # -- for each NodeDevice ----------------------------------------------------------------------------------------------

    async def node_uid(self, *, is_new: bool) -> str:
        """The UID of the Node that owns the objects. is_new: whether it is for an object that did not exist before; then the
        one that was read last will do. If that Node is gone, the garbage collector deletes the object. Raises ApiError.
        """
        if not (is_new and self._node_uid):
            self._node_uid = await self.cluster.node_uid(self.node_name)
        return self._node_uid

    async def saved(self) -> None:
        """Wait until every allocation so far is on disk: before that none may be published."""
        await self._host.saved()

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker | None:
        make, twice = self._maker(resource_name, observed, wall_time), self.offered_twice
        if make is None or twice is None:
            return make
        condition = twice.conditions.get(resource_name)
        if condition is None and not twice.is_known:
            # keep the condition from before this agent's start
            condition = condition_of(observed, Condition.OFFERED_TWICE)
        if not condition:
            return make
        kind = Condition.OFFERED_TWICE
        return StatusMaker(lambda: with_condition(make.made(), observed, wall_time, kind, condition), make.is_long)

    def _maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker | None:
        if not self.are_pods_known:
            return None
        stale = self._stale_watches
        is_watch_stale = bool(stale) and not stale.isdisjoint((PODS, node_device_name(self.node_name, resource_name)))
        sources = (source for source in self._sources if resource_name in source.resources)
        source = next((source for source in sources if source.has(resource_name)), None)
        if source is not None:
            is_watch_stale = is_watch_stale or source.watch in stale
            return source.status_maker(
                resource_name, observed, wall_time, self._host.now(), is_watch_stale=is_watch_stale
            )
        manager, delivery = self._host.manager, self._delivery
        if resource_name not in manager.resources or is_settling(manager, resource_name) or not delivery.is_settled:
            return None
        now = snapshot(manager, resource_name, delivery.not_injected)
        metrics.observe(now)
        return status_maker(
            now,
            observed,
            wall_time=wall_time,
            version=__version__,
            delivery=manager.resources[resource_name].delivery,
            unsaved=self._host.unsaved,
            notes=self._notes or delivery.notes,
            injectable=delivery.injectable(now),
            is_watch_stale=is_watch_stale,
        )

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """All cordons in the NodeDevice of that UID, by device ID; uid "": it does not exist."""
        for source in self._sources:
            source.cordoned(resource_name, in_spec)
        manager = self._host.manager
        before = manager.cordons.get(resource_name, NO_CORDONS).remembered
        manager.table.cordoned(resource_name, uid, in_spec)
        self._host.settle()
        after = manager.cordons.get(resource_name, NO_CORDONS).remembered
        if after.keys() - before.keys():
            extra = {"resource_name": resource_name, "device_ids": sorted(after)[:16]}
            log.warning("NodeDevice with cordons was deleted; keeping them", extra=extra)
