"""What DRA drivers offer on this node: which pools have a NodeDevice, by which name, and what it shows. It is only shown.

Each pool is a resource of the node: it has a place among the names, a state, and what pods hold of it. Its state follows its
slices: a kubelet that starts deletes all slices of its node, and the drivers publish them again. So a pool without any is gone only
after a moment, and one that lacks some is only reported as incomplete after a longer one.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec.structs import replace
from nodedevice_api import names
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.nodedevice import AllocationStatus, NodeDeviceStatus
from nodedevice_common.fair_places import EXCHANGE_SECONDS, spare

from nodedevice_agent import __version__, metrics
from nodedevice_agent.devicemanager.places import Places
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.dra.devices import PoolKey, Slice
from nodedevice_agent.dra.names import domain, is_observed, resource_name
from nodedevice_agent.dra.pools import Pool, Pools
from nodedevice_agent.dra.status import Offered, conditions, held_devices, snapshot, with_times
from nodedevice_agent.kube.served import MOST_IN_LOOP, StatusMaker
from nodedevice_agent.kube.status import node_device_status

# drivers publish within tenths of a second after the kubelet has deleted their slices
GONE_SECONDS: Final = 10.0
# slices of one generation come one by one, and a driver's client may be slow
INCOMPLETE_SECONDS: Final = 30.0
# until another name may have left its place
_PLACE_SECONDS: Final = 30.0
# names of a driver that may lose one to another driver
_LEAST: Final = 2
# the name of the watch of slices, in /readyz
WATCH: Final = "resourceslices"


class Held(Protocol):
    """Which containers have which devices of a pool, by the kubelet; none, as far as a class does not say otherwise."""

    @property
    def is_known(self) -> bool:
        """Whether the kubelet has answered since the start; until then the last published statuses stay."""
        return True

    def of(self, driver: str, pool: str) -> Sequence[AllocationStatus]:
        """Sorted by pod UID, container and claim; without times."""
        return ()

    def pools(self) -> frozenset[PoolKey]:
        """Of which pods hold devices, also where no slice shows them any more."""
        return frozenset()

    def reported_unhealthy(self, driver: str, pool: str) -> Mapping[str, str]:
        """By device: what the status of the pod that holds it says."""
        return {}


class ServedByDrivers:
    """A source of the Publisher.

    is_taken: whether a name is of devices that are given out in another way. known: the names of pools before the start.
    is_off: whether drivers are not observed any more; then these have no slices, and their NodeDevices are deleted.
    """

    watch = WATCH

    def __init__(
        self,
        node_name: str,
        held: Held,
        is_taken: Callable[[str], bool],
        known: Mapping[PoolKey, str],
        *,
        is_off: bool = False,
    ) -> None:
        self.pools = Pools()
        self.resources: dict[str, Resource] = {}
        # no pod asks for one of these names in its limits
        self.places = Places(self.resources, dict[str, Pod]())
        self.places.are_pods_known = True
        # called when the NodeDevice of a pool is: a pool that is there may have a place again, of another its name ends
        self.on_forgotten: Callable[[], None] = lambda: None
        self.is_off = is_off
        # whether the API server serves DeviceTaintRules
        self.has_rules = False
        # whether slices are not followed any more although there are some, for want of the right
        self.is_blind = False
        # whether a pool is one that is not of this node; None until that is known
        self.is_beyond: Callable[[PoolKey], bool | None] = lambda key: False
        # False until the first list of slices
        self.is_synced = False
        self.names: dict[PoolKey, str] = {**known}
        self._keys: dict[str, PoolKey] = {}
        self._node_name = node_name
        self._held = held
        self._is_taken = is_taken
        # what is shown of each: of a pool that has just lost its slices, as it was
        self._shown: dict[PoolKey, Pool] = {}
        self._gone_at: dict[PoolKey, float] = {}
        self._late_at: dict[PoolKey, float] = {}
        self._cordons: dict[str, Collection[str]] = {}
        self._next_exchange = self._ticked_at = -math.inf

    @property
    def without_place(self) -> set[PoolKey]:
        """Pools that are not shown, as the node has too many names."""
        return {pool.key for pool in self.pools if self.names.get(pool.key) not in self.resources}

    @property
    def only_held(self) -> set[PoolKey]:
        """Pools that nothing tells of but the pods that have their devices; none before the first list of slices."""
        known = {*self.names, *self._shown, *(pool.key for pool in self.pools)}
        return {*self._held.pools()} - known if self.is_synced else set()

    # -- changes --------------------------------------------------------------------------------------------------------------

    def put(self, found: Slice, now: float) -> set[str]:
        """A slice, new or changed. Each change returns the resources that may have changed."""
        return self._changed(self.pools.put(found), now)

    def removed(self, slice_name: str, now: float) -> set[str]:
        return self._changed(self.pools.remove(slice_name), now)

    def synced(self, slice_names: Collection[str], now: float) -> set[str]:
        """All slices that there are, which were put before."""
        gone = {key for name in self.pools.names().difference(slice_names) for key in self.pools.remove(name)}
        if self.is_synced:
            return self._changed(gone, now)
        self.is_synced = True
        known = {*self.names, *self._held.pools(), *(pool.key for pool in self.pools)}
        # a kubelet that has just started has deleted the slices of its node
        wait = 0.0 if self.is_off else GONE_SECONDS
        self._gone_at.update({key: now + wait for key in known if key not in self.pools})
        return self._changed(gone | known, now)

    def remember(self, name: str, status: NodeDeviceStatus) -> None:
        """The NodeDevice that a pool had before the start, where nothing else knows of it."""
        key = (status.driver, status.pool)
        is_new = is_observed(key) and key not in self.names and name not in self.names.values()
        if is_new and name.startswith(f"{domain(key[0])}/") and not self.is_synced:
            self.names[key] = name

    def held_changed(self, key: PoolKey, now: float) -> set[str]:
        """Containers have other devices of that pool than before, or other ones of them are healthy."""
        return self._changed({key}, now) if self.is_synced else set()

    def held_known(self, now: float) -> set[str]:
        """What containers have is known from now on."""
        return self._changed({*self.names, *self._held.pools()}, now) if self.is_synced else set()

    def tick(self, now: float) -> set[str]:
        """Time has passed: some may be gone, or incomplete for too long; and others may have left room."""
        gone = {key for key, at in self._gone_at.items() if at <= now}
        late = {key for key, at in self._late_at.items() if self._ticked_at < at <= now}
        self._ticked_at = now
        return self._changed(gone | late | self.without_place, now)

    def next_deadline(self, now: float) -> float:
        """When tick() is due."""
        times = [at for deadlines in (self._gone_at, self._late_at) for at in deadlines.values() if at > now]
        return min([*times, now + _PLACE_SECONDS] if self.without_place else times, default=math.inf)

    def displaced(self, resource_names: Iterable[str], by: str) -> set[str]:
        """The places of those are that name's."""
        own = [name for name in resource_names if name in self.resources]
        for name in own:
            self.resources[name].displaced(by)
        return {*own}

    # -- for what publishes it --------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether it is a pool's, and nobody else gives such devices out."""
        return name in self.resources and not self._is_taken(name)

    def cordoned(self, name: str, device_ids: Collection[str]) -> None:
        self._cordons[name] = device_ids

    def forget(self, name: str) -> bool:
        """Whether no driver has it any more, and no pod holds any of it."""
        resource = self.resources.get(name)
        if resource is not None and (resource.presence.state is not EndpointState.GONE or resource.use.holders):
            return False
        self.resources.pop(name, None)
        self._cordons.pop(name, None)
        key = self._keys.pop(name, None)
        if key is not None:
            if key not in self.pools:
                self._forget_pool(key)
            self.on_forgotten()
        return True

    def status_maker(
        self, name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker | None:
        found = self.offered(name, now)
        if found is None or (found.pool is None and not found.rows and observed == NodeDeviceStatus()):
            # not known yet; or over, and nobody has an object of it
            return None
        is_blind = is_watch_stale or self.is_blind
        is_long = found.pool is not None and len(found.pool.devices) > MOST_IN_LOOP
        # in the event loop, whoever makes the status
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
        # it may be forgotten by now
        if shown.resource_name in self.resources:
            metrics.observe(shown, rows)

    def offered(self, name: str, now: float) -> Offered | None:
        """What is known of it now; None while that is not known, as after a start."""
        key, resource = self._keys.get(name), self.resources.get(name)
        if key is None or resource is None or not self.is_synced or not self._held.is_known:
            return None
        pool = self._shown.get(key)
        if pool is None and key in self._gone_at:
            return None
        return Offered(
            key,
            name,
            pool,
            EndpointState.RUNNING if pool is not None and resource.presence.lost_to is None else EndpointState.GONE,
            self._held.of(*key),
            self._held.reported_unhealthy(*key),
            key in self._late_at and self._late_at[key] <= now,
            resource.presence.lost_to,
            self._cordons.get(name, ()),
            self.has_rules,
            self.is_off,
        )

    # -- internals --------------------------------------------------------------------------------------------------------------

    def _changed(self, keys: Iterable[PoolKey], now: float) -> set[str]:
        """The drivers with fewest names first: a place that is free is theirs."""
        counts = Counter(map(domain_of, self.resources))
        in_turn = sorted(keys, key=lambda key: (counts[domain(key[0])], key))
        return {name for key in in_turn for name in self._follow(key, now)}

    def _follow(self, key: PoolKey, now: float) -> Iterable[str]:
        """Bring what is shown of a pool up to date. Returns the names that may show something else now."""
        if not is_observed(key):
            return ()
        pool, rows = self.pools.get(key), self._held.of(*key)
        self._follow_times(key, pool, now)
        is_known = key in self._shown or key in self.names or (bool(rows) and self.is_beyond(key) is False)
        if not is_known:
            return ()
        name = self._name(key)
        resource = self._resource(key, name)
        if resource is None:
            return self._make_room(name, now)
        resource.use.holders.clear()
        resource.use.holders.update(dict.fromkeys(held_devices(rows), ""))
        if resource.presence.lost_to is None:
            self._follow_state(key, resource)
        return (resource.name,)

    def _follow_times(self, key: PoolKey, pool: Pool | None, now: float) -> None:
        if pool is not None:
            self._shown[key] = pool
            self._gone_at.pop(key, None)
        elif key in self._shown:
            self._gone_at.setdefault(key, now + GONE_SECONDS)
        if key in self._gone_at and self._gone_at[key] <= now:
            del self._gone_at[key]
            self._shown.pop(key, None)
            self.pools.forget(key)
        if pool is None or pool.is_complete:
            self._late_at.pop(key, None)
        else:
            self._late_at.setdefault(key, now + INCOMPLETE_SECONDS)

    def _name(self, key: PoolKey) -> str:
        name = self.names.get(key)
        if name is not None and not self._is_taken(name):
            return name
        if name is not None:
            # who gives such devices out has its object
            self._keys.pop(name, None)
            self.resources.pop(name, None)
        known = {*self._keys, *self.names.values()}
        return resource_name(self._node_name, *key, lambda name: name in known or self._is_taken(name))

    def _resource(self, key: PoolKey, name: str) -> Resource | None:
        """None where the node has no place for its name."""
        if name in self.resources:
            return self.resources[name]
        if name not in self.places.placed([name]):
            return None
        self.names[key], self._keys[name] = name, key
        resource = self.resources[name] = Resource(name)
        return resource

    def _make_room(self, name: str, now: float) -> Collection[str]:
        """Take its place from the newest pool that nobody holds any of, of the driver with most, as a plugin that registers would.

        One at a time, and one a minute at most: it is waited for that its NodeDevice is deleted. Returns which one that is.
        """
        is_awaited = any(resource.presence.lost_to is not None for resource in self.resources.values())
        if is_awaited or now < self._next_exchange:
            return ()
        # those of others are theirs to give up
        taken = {other: is_needed or other not in self.resources for other, is_needed in self.places.taken().items()}
        loser = spare(name, taken)
        # whoever has one alone would take a place back
        if not loser or sum(domain_of(other) == domain_of(loser) for other in taken) < _LEAST:
            return ()
        self._next_exchange = now + EXCHANGE_SECONDS
        self.resources[loser].displaced(name)
        return (loser,)

    def _follow_state(self, key: PoolKey, resource: Resource) -> None:
        if key in self._shown:
            resource.presence.state = EndpointState.RUNNING
        elif key not in self._gone_at:
            resource.expire()

    def _forget_pool(self, key: PoolKey) -> None:
        for known in (self.names, self._shown, self._gone_at, self._late_at):
            known.pop(key, None)
