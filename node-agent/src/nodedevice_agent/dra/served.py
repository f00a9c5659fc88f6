"""Shows the pools of DRA drivers on this node as NodeDevices: chooses the pools, their names and their status.

A kubelet that starts deletes all slices of its node, and the drivers publish them again. So a pool without slices is gone only
after a delay, and an incomplete pool is reported only after a longer one.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from nodedevice_api import names
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.nodedevice import AllocationStatus, NodeDeviceStatus
from nodedevice_common.fair_places import EXCHANGE_SECONDS, spare

from nodedevice_agent import __version__, metrics
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resource_name_limit import Places
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.dra.devices import PoolKey, Slice
from nodedevice_agent.dra.holdings import NO_HOLDINGS, PoolHoldings
from nodedevice_agent.dra.names import domain, is_observed, resource_name
from nodedevice_agent.dra.pools import Pool, Pools
from nodedevice_agent.dra.status import Offered, conditions, held_devices, snapshot, with_times
from nodedevice_agent.kube.served_resources import MOST_IN_LOOP, StatusMaker
from nodedevice_agent.kube.status import node_device_status

# drivers publish within tenths of a second after the kubelet has deleted their slices
GONE_SECONDS: Final = 10.0
# slices of one generation come one by one, and a driver's client may be slow
INCOMPLETE_SECONDS: Final = 30.0
# the interval of attempts to get a free place
_PLACE_SECONDS: Final = 30.0
# a driver with so many names may lose one to another driver
_LEAST: Final = 2
# the name of the watch of slices, in /readyz
WATCH: Final = "resourceslices"


class PoolHolders:
    """The devices of pools in containers, from the kubelet. The defaults stand for a node without any."""

    # whether the kubelet has responded since the start; until then the published statuses stay
    is_known = True

    def of(self, key: PoolKey) -> PoolHoldings:
        return NO_HOLDINGS

    def pools(self) -> Collection[PoolKey]:
        """Pools whose devices are held by pods, also after their slices are gone."""
        return ()


class ServedByDrivers:
    """A source of the Publisher. is_taken: whether another allocator has a name. known: the names of pools before the start.

    is_off: whether observation of drivers is off; then pools have no slices, and their NodeDevices are deleted.
    """

    watch = WATCH

    def __init__(
        self,
        node_name: str,
        held: PoolHolders,
        is_taken: Callable[[str], bool],
        known: Mapping[PoolKey, str],
        *,
        is_off: bool = False,
    ) -> None:
        self.pools = Pools()
        self.resources: dict[str, Resource] = {}
        # pods never request these names in their limits
        self.places = Places(self.resources, dict[str, Pod]())
        self.places.are_pods_known = True
        # called when a pool's NodeDevice is forgotten: an existing pool may get a place again, and a deleted pool loses its name
        self.on_forgotten: Callable[[], None] = lambda: None
        self.is_off = is_off
        # whether the API server serves DeviceTaintRules
        self.has_rules = False
        # whether the agent has lost the permission to watch slices
        self.is_blind = False
        # whether a pool does not belong to this node; None until known
        self.is_beyond: Callable[[PoolKey], bool | None] = lambda key: False
        # False until the first list of slices
        self.is_synced = False
        self.names: dict[PoolKey, str] = {**known}
        self._keys: dict[str, PoolKey] = {}
        self._node_name = node_name
        self._held = held
        self._is_taken = is_taken
        self._gone_at: dict[PoolKey, float] = {}
        self._late_at: dict[PoolKey, float] = {}
        self._cordons: dict[str, Collection[str]] = {}
        self._next_exchange = self._ticked_at = -math.inf

    @property
    def without_place(self) -> set[PoolKey]:
        """Pools that are not shown because the node has too many names."""
        return {key for key in self.pools if self.names.get(key) not in self.resources}

    @property
    def only_held(self) -> set[PoolKey]:
        """Pools known only from pods that hold their devices; empty before the first list of slices."""
        known = {*self.names, *self.pools.former, *self.pools}
        return {*self._held.pools()} - known if self.is_synced else set()

    # -- changes --------------------------------------------------------------------------------------------------------------

    def put(self, found: Slice, now: float) -> set[str]:
        """Add or replace a slice. Like all changes, returns the resources that may have changed."""
        return self._changed(self.pools.put(found), now)

    def removed(self, slice_name: str, now: float) -> set[str]:
        return self._changed(self.pools.remove(slice_name), now)

    def synced(self, slice_names: Collection[str], now: float) -> set[str]:
        """Set the names of all existing slices, which were put before."""
        gone = {key for name in self.pools.names().difference(slice_names) for key in self.pools.remove(name)}
        if self.is_synced:
            return self._changed(gone, now)
        self.is_synced = True
        known = {*self.names, *self._held.pools(), *self.pools}
        # a kubelet that has just started has deleted the slices of its node
        wait = 0.0 if self.is_off else GONE_SECONDS
        self._gone_at.update({key: now + wait for key in known if key not in self.pools})
        return self._changed(gone | known, now)

    def remember(self, name: str, status: NodeDeviceStatus) -> None:
        """Restore the name of a pool from its NodeDevice, if no other record has it."""
        key = (status.driver, status.pool)
        is_new = is_observed(key) and key not in self.names and name not in self.names.values()
        if is_new and name.startswith(f"{domain(key[0])}/") and not self.is_synced:
            self.names[key] = name

    def held_changed(self, key: PoolKey, now: float) -> set[str]:
        """The devices of that pool in containers changed, or their health."""
        return self._changed({key}, now) if self.is_synced else set()

    def held_known(self, now: float) -> set[str]:
        """The devices of containers are known from now on."""
        return self._changed({*self.names, *self._held.pools()}, now) if self.is_synced else set()

    def tick(self, now: float) -> set[str]:
        """Time has passed: pools may be gone, incomplete for too long, or get a free place."""
        gone = {key for key, at in self._gone_at.items() if at <= now}
        late = {key for key, at in self._late_at.items() if self._ticked_at < at <= now}
        self._ticked_at = now
        return self._changed(gone | late | self.without_place, now)

    def next_deadline(self, now: float) -> float:
        """The next time for tick()."""
        times = [at for deadlines in (self._gone_at, self._late_at) for at in deadlines.values() if at > now]
        return min([*times, now + _PLACE_SECONDS] if self.without_place else times, default=math.inf)

    def displaced(self, resource_names: Iterable[str], by: str) -> set[str]:
        """The places of these resources go to the resource `by`."""
        own = [name for name in resource_names if name in self.resources]
        for name in own:
            self.resources[name].displaced(by)
        return {*own}

    # -- for the publisher -----------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the name belongs to a pool, and no other allocator has it."""
        return name in self.resources and not self._is_taken(name)

    def cordoned(self, name: str, device_ids: Collection[str]) -> None:
        self._cordons[name] = device_ids

    def forget(self, name: str) -> bool:
        """Whether the pool is unused: without slices, and without a device that a pod holds."""
        resource = self.resources.get(name)
        if resource is not None and (resource.presence.state is not EndpointState.GONE or resource.use.holders):
            return False
        self.resources.pop(name, None)
        self._cordons.pop(name, None)
        key = self._keys.pop(name, None)
        if key is not None:
            if key not in self.pools:
                for by_key in (self.names, self.pools.former, self._gone_at, self._late_at):
                    by_key.pop(key, None)
            self.on_forgotten()
        return True

    def status_maker(
        self, name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker | None:
        found = self.offered(name, now)
        if found is None or (found.pool is None and not found.rows and observed == NodeDeviceStatus()):
            # not known yet; or gone, and without a NodeDevice
            return None
        is_blind = is_watch_stale or self.is_blind
        is_long = found.pool is not None and len(found.pool.devices) > MOST_IN_LOOP
        # metrics are set in the event loop, also if a thread makes the status
        loop = asyncio.get_running_loop() if is_long else None

        def made() -> NodeDeviceStatus:
            shown, (driver, pool) = snapshot(found), found.key
            if loop is not None:
                loop.call_soon_threadsafe(self._observe, shown, found.rows)
            else:
                self._observe(shown, found.rows)
            status = node_device_status(
                shown,
                observed,
                wall_time=wall_time,
                version=__version__,
                served_by=names.SERVED_BY_DRA,
                is_watch_stale=is_blind,
                rows=with_times(found.rows, observed.allocations, wall_time),
                conditions=conditions(found, shown),
            )
            return replace(status, driver=driver, pool=pool)

        return StatusMaker(made, is_long)

    def _observe(self, shown: Snapshot, rows: Sequence[AllocationStatus]) -> None:
        # the pool may be forgotten by now
        if shown.resource_name in self.resources:
            metrics.observe(shown, rows)

    def offered(self, name: str, now: float) -> Offered | None:
        """The current state of a pool; None while it is unknown, as after a start."""
        key, resource = self._keys.get(name), self.resources.get(name)
        if key is None or resource is None or not self.is_synced or not self._held.is_known:
            return None
        pool, held = self._shown(key), self._held.of(key)
        if pool is None and key in self._gone_at:
            return None
        return Offered(
            key,
            name,
            pool,
            EndpointState.RUNNING if pool is not None and resource.presence.lost_to is None else EndpointState.GONE,
            held.allocations,
            held.unhealthy,
            key in self._late_at and self._late_at[key] <= now,
            resource.presence.lost_to,
            self._cordons.get(name, ()),
            self.has_rules,
            self.is_off,
        )

    def _changed(self, keys: Iterable[PoolKey], now: float) -> set[str]:
        """Follow the pools; drivers with the fewest names come first and get free places."""
        counts = Counter(map(domain_of, self.resources))
        in_turn = sorted(keys, key=lambda key: (counts[domain(key[0])], key))
        return {name for key in in_turn for name in self._follow(key, now)}

    def _follow(self, key: PoolKey, now: float) -> Iterable[str]:
        """Update the shown state of a pool. Returns the names that may have changed."""
        if not is_observed(key):
            return ()
        pool, rows = self.pools.get(key), self._held.of(key).allocations
        self._follow_times(key, pool, now)
        shown = self._shown(key)
        if shown is None and key not in self.names and (not rows or self.is_beyond(key) is not False):
            return ()
        name = self._name(key)
        resource = self._resource(key, name)
        if resource is None:
            return self._make_room(name, now)
        resource.use.holders.clear()
        resource.use.holders.update(dict.fromkeys(held_devices(rows), ""))
        if resource.presence.lost_to is None and shown is not None:
            resource.presence.state = EndpointState.RUNNING
        elif resource.presence.lost_to is None and key not in self._gone_at:
            resource.expire()
        return (resource.name,)

    def _shown(self, key: PoolKey) -> Pool | None:
        """The shown state of a pool; after it lost its slices, the last one."""
        return self.pools.get(key) or self.pools.former.get(key)

    def _follow_times(self, key: PoolKey, pool: Pool | None, now: float) -> None:
        if pool is not None:
            self._gone_at.pop(key, None)
        elif key in self.pools.former:
            self._gone_at.setdefault(key, now + GONE_SECONDS)
        if key in self._gone_at and self._gone_at[key] <= now:
            del self._gone_at[key]
            self.pools.former.pop(key, None)
        if pool is None or pool.is_complete:
            self._late_at.pop(key, None)
        else:
            self._late_at.setdefault(key, now + INCOMPLETE_SECONDS)

    def _name(self, key: PoolKey) -> str:
        name = self.names.get(key)
        if name is not None and not self._is_taken(name):
            return name
        if name is not None:
            # the other allocator owns the object
            self._keys.pop(name, None)
            self.resources.pop(name, None)
        known = {*self._keys, *self.names.values()}
        return resource_name(self._node_name, *key, lambda name: name in known or self._is_taken(name))

    def _resource(self, key: PoolKey, name: str) -> Resource | None:
        """The resource of a pool; None if the node has no place for its name."""
        if name in self.resources:
            return self.resources[name]
        if name not in self.places.placed([name]):
            return None
        self.names[key], self._keys[name] = name, key
        resource = self.resources[name] = Resource(name)
        return resource

    def _make_room(self, name: str, now: float) -> Collection[str]:
        """End the newest unused pool of the driver with the most names, like the registration of a plugin. Returns its name.

        One at a time, and at most one a minute: its NodeDevice must be deleted first.
        """
        is_awaited = any(resource.presence.lost_to is not None for resource in self.resources.values())
        if is_awaited or now < self._next_exchange:
            return ()
        # only pools of this source may be ended
        taken = {other: is_needed or other not in self.resources for other, is_needed in self.places.taken().items()}
        loser = spare(name, taken)
        # a driver whose only name was taken would claim a place again
        if not loser or sum(domain_of(other) == domain_of(loser) for other in taken) < _LEAST:
            return ()
        self._next_exchange = now + EXCHANGE_SECONDS
        self.resources[loser].displaced(name)
        return (loser,)
