"""Resources that the kubelet's own device manager serves, as far as its pod resources and its checkpoint show them.

A Mirror whose device lists come from the kubelet, too. It reports healthy devices alone; one that was among them, or that a pod
holds, counts as unhealthy once it is not. The status of that pod may say so, seconds later; then it is the plugin's word. Those
that were never seen are a number: what the Node's capacity has besides. Nothing here is allocated, cordoned or advertised.
Source: kubelet pkg/kubelet/cm/devicemanager GetAllocatableDevices, GetCapacity, UpdateAllocatedResourcesStatus, checkpoint @ 1.37.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus

from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.kubelet.attribution import KubeletState, unordered
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.readings import DevicesByID, PodReading

# of the one connection that each resource has: the kubelet's
_ENDPOINT = 1
_REPORTED = "its plugin reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"
# devices of the lists that are made in one turn of the event loop: each takes some ten microseconds
MAX_DEVICES_IN_LOOP = 1024
# in place of how often what is held has changed, before a resource is connected
_NOT_CONNECTED = -1
_NO_IDS: dict[str, tuple[int, ...]] = {}
_NOT_ALLOCATABLE = "the kubelet does not list it as allocatable: its plugin reports it unhealthy, or is not connected"


class KubeletDevices(Struct, frozen=True):
    """The kubelet's healthy devices by resource name, also of a resource that has none left.

    are_names_complete: whether a resource that is not here is not the kubelet's any more; False where the checkpoint is unreadable.
    omitted: see HealthyDevices.
    """

    healthy: Mapping[str, DevicesByID] = field(default_factory=dict)
    are_names_complete: bool = True
    omitted: Mapping[str, int] = field(default_factory=dict)


def devices_of(found: PodReading, before: Mapping[str, DevicesByID]) -> KubeletDevices:
    """With the names in the checkpoint: a resource without any healthy device is only there. Of a kubelet that does not list
    devices they are its alone, with the NUMA nodes that were known before; where both are missing, all stay.
    """
    omitted = dict(found.omitted)
    if found.checkpoint is None:
        return KubeletDevices(before if found.devices is None else found.devices, False, omitted)
    names = found.checkpoint.registered
    if found.devices is not None:
        return KubeletDevices({**dict.fromkeys(names, _NO_IDS), **found.devices}, omitted=omitted)
    known: Mapping[str, DevicesByID] = {name: before.get(name, _NO_IDS) for name in names}
    return KubeletDevices({name: _with_nodes(ids, known[name]) for name, ids in names.items()}, omitted=omitted)


def _with_nodes(ids: Collection[str], known: DevicesByID) -> DevicesByID:
    """The same object where these are the known ones. Of a hundred thousand it takes milliseconds."""
    if len(ids) == len(known) and all(map(known.__contains__, ids)):
        return known
    return {i: known.get(i, ()) for i in ids} if known else dict.fromkeys(ids, ())


class Listing(Struct, frozen=True):
    """What the list of one resource is made of. It may have tens of thousands of devices: made() is for a thread then.

    held, reported: devices that pods hold, and those of them that are unhealthy by the pods' status. remembered: devices that were
    healthy before. capacity: of the Node; -1 or less: not read yet, or before the devices came. omitted: how many more healthy
    devices are known by their number alone. holds: of the resource.
    """

    name: str
    healthy: DevicesByID
    held: Collection[str]
    reported: frozenset[str]
    remembered: Collection[str]
    capacity: int
    omitted: int
    listed: ListedDevices
    holds: int

    @property
    def size(self) -> int:
        """Devices to go through."""
        return len(self.healthy) + len(self.held) + len(self.remembered)

    def is_like(self, made: "Listing | None") -> bool:
        """Whether the same list comes of it, as far as that shows without going through the devices."""
        if made is None or self.healthy is not made.healthy or self.remembered is not made.remembered:
            return False
        # where none is lost, it does not matter how many there is room for
        is_capacity_used = len(self.remembered) != len(self.healthy)
        is_same = (self.holds, self.omitted, self.reported) == (made.holds, made.omitted, made.reported)
        return is_same and (self.capacity == made.capacity or not is_capacity_used)

    def made(self) -> ListedDevices:
        devices = [Device(str(i), numa_nodes=numa) for i, numa in self.healthy.items()]
        for device_id in self._lost():
            known = self.listed.devices.get(device_id)
            numa = known.numa_nodes if known is not None else ()
            message = _REPORTED if device_id in self.reported else _NOT_ALLOCATABLE
            devices.append(Device(device_id, False, numa, Reason.NOT_ALLOCATABLE, message))
        return accept(devices, known=self.listed, counted=self.omitted)

    def _lost(self) -> list[str]:
        """Devices that were healthy, or are held, and are not healthy now. Not more than the Node counts: the others are gone."""
        held = sorted({*self.held, *self.reported}.difference(self.healthy))
        free = sorted({*self.remembered}.difference(self.healthy, held))
        room = self.capacity - len(self.healthy) - self.omitted - len(held)
        return held + (free if room < 0 else free[:room])


class _NoLimit(ListLimit):
    """Nothing that the kubelet has is refused: of lists that are too long some devices are known by their number alone."""

    def accepted(self, resource: Resource, endpoint: int, listed: ListedDevices) -> ListedDevices:
        return listed


class ServedByKubelet(Mirror):
    """read() after each look at the kubelet; pods as in every device manager."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.list_limit = _NoLimit(self.resources)
        # of the Node, by resource name; empty until it was read
        self._capacity: Mapping[str, int] = {}
        self._healthy: Mapping[str, DevicesByID] = {}
        # how many names the kubelet has that are not shown, as the node has too many
        self.without_place = 0
        self._omitted: Mapping[str, int] = {}
        # IDs that were healthy before, by resource name
        self._remembered: dict[str, Collection[str]] = {}
        # of which the lists were made last, by resource name; and what the allocations of the pods rest on
        self._made: dict[str, Listing] = {}
        self._mirrored: tuple[object, ...] | None = None
        # resources whose list is too long to be made in the event loop, see next_listing()
        self._long: set[str] = set()
        # of these the published devices are remembered
        self._published: set[str] = set()
        # by pod UID: resource name and ID of devices that its status reports unhealthy
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}

    # -- changes ----------------------------------------------------------------------------------------------------------

    def read(self, found: KubeletDevices, state: KubeletState, now: float) -> list[Effect]:
        """What the kubelet has now. Where its pod resources could not be read, the last allocations stay."""
        names = [
            name for name in dict.fromkeys([*found.healthy, *_held_names(state)]) if not resource_name_problem(name)
        ]
        placed = self.places.placed(names)
        self.without_place = len(names) - len(placed)
        self._healthy = {name: ids for name, ids in found.healthy.items() if name in placed}
        self._omitted = found.omitted
        before = {*self.resources}
        effects: list[Effect] = []
        if found.are_names_complete:
            for name in self.resources.keys() - self._healthy.keys():
                effects += self.disconnected(name, _ENDPOINT, now)
        for name in names:
            # its plugin may be gone, and its pods run on
            if name in placed and name not in self.resources and name not in self._healthy:
                self._table.add(name)
                effects.append(Publish(name))
        if (mirrored := (unordered(state.entries), state.rows)) != self._mirrored or before != self.resources.keys():
            effects += self.mirrored(state, now)
            self._mirrored = mirrored
        return effects + self._list(now)

    def capacity_is(self, capacity: Mapping[str, int], now: float) -> list[Effect]:
        """What the Node shows: also devices that are not healthy, seconds after the kubelet knows of them."""
        if capacity == self._capacity:
            return []
        self._capacity = capacity
        return [*self._list(now), *(Publish(name) for name in sorted(self.resources))]

    def pods_synced(self, pods: Iterable[Pod], now: float) -> list[Effect]:
        """The complete list of this node's pods."""
        found = list(pods)
        self.places.are_pods_known = True
        self._reported = {pod.uid: pod.unhealthy for pod in found if pod.unhealthy and not pod.has_ended}
        return [*super().pods_synced(found, now), *self._list(now)]

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod bound to this node, new or changed; also in what its status says of its devices."""
        effects = super().pod_seen(pod, now)
        return effects if pod.has_ended else effects + self._report(pod.uid, pod.unhealthy, now)

    def pod_gone(self, pod_uid: str, now: float) -> list[Effect]:
        """The pod has finished, or the API no longer has it."""
        return super().pod_gone(pod_uid, now) + self._report(pod_uid, frozenset(), now)

    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None:
        """What the published status lists as lost, of before this agent started: once."""
        if resource_name not in self._published:
            self._published.add(resource_name)
            lost = {device.id for device in devices if device.reason == Reason.NOT_ALLOCATABLE}
            known = self._remembered.get(resource_name, _NO_IDS)
            if not lost.issubset(known):
                self._remembered[resource_name] = lost.union(known)
            self._list(now)

    def forget(self, resource_name: str) -> bool:
        """The same, with the devices that are remembered of it."""
        is_forgotten = super().forget(resource_name)
        if is_forgotten:
            self._remembered.pop(resource_name, None)
            self._made.pop(resource_name, None)
            self._published.discard(resource_name)
        return is_forgotten

    # -- reads ------------------------------------------------------------------------------------------------------------

    def has_healthy(self, resource_name: str) -> bool:
        """Whether the kubelet gives out devices of it now."""
        return bool(self._healthy.get(resource_name))

    def snapshot(self, resource_name: str) -> Snapshot:
        """With devices that the kubelet counts, and of which nothing else is known. Raises KeyError for an unknown resource."""
        now = snapshot(self, resource_name)
        return replace(now, total=max(now.total, self._capacity.get(resource_name, 0) if now.is_live else 0))

    # -- internals --------------------------------------------------------------------------------------------------------

    def _report(self, pod_uid: str, unhealthy: frozenset[tuple[str, str]], now: float) -> list[Effect]:
        if unhealthy == self._reported.get(pod_uid, frozenset()):
            return []
        if unhealthy:
            self._reported[pod_uid] = unhealthy
        else:
            del self._reported[pod_uid]
        return self._list(now)

    def _list(self, now: float) -> list[Effect]:
        reported: dict[str, set[str]] = {}
        for name, device_id in frozenset[tuple[str, str]]().union(*self._reported.values()):
            reported.setdefault(name, set()).add(device_id)
        left = MAX_DEVICES_IN_LOOP
        self._long &= self._healthy.keys()
        short = []
        for name in self._healthy:
            listing = self._listing(name, frozenset(reported.get(name, ())))
            if listing.is_like(self._made.get(name)):
                self._long.discard(name)
            elif (left := left - listing.size) < 0:
                self._long.add(name)
            else:
                short.append(listing)
        effects, left = self._connect([listing.name for listing in short], now), MAX_DEVICES_IN_LOOP
        for before in short:
            # with what pods hold of it, as far as that shows only now; it may be far more
            listing = self._listing(before.name, before.reported)
            if (left := left - listing.size) < 0:
                self._long.add(listing.name)
            else:
                effects += self.listing_made(listing, listing.made(), now)
        return effects

    def _listing(self, name: str, reported: frozenset[str]) -> Listing:
        resource = self.resources.get(name)
        return Listing(
            name,
            self._healthy[name],
            resource.holders.keys() if resource is not None else (),
            reported,
            self._remembered.get(name, _NO_IDS),
            self._capacity.get(name, -1),
            self._omitted.get(name, 0),
            resource.listed if resource is not None else NO_DEVICES,
            resource.holds if resource is not None and resource.endpoint is not None else _NOT_CONNECTED,
        )

    def next_listing(self) -> Listing | None:
        """Of a resource whose list is long, as everything is now; for made() in a thread, and then listing_made()."""
        while self._long:
            name = self._long.pop()
            reported = {i for devices in self._reported.values() for of_name, i in devices if of_name == name}
            found = self._listing(name, frozenset(reported))
            if not found.is_like(self._made.get(name)):
                return replace(found, held=frozenset(found.held))
        return None

    def listing_made(self, listing: Listing, listed: ListedDevices, now: float) -> list[Effect]:
        """That list is the resource's; what has changed while it was made is made next."""
        name, remembered = listing.name, listing.remembered
        if name not in self._healthy:
            return []
        if self._remembered.get(name, _NO_IDS) is remembered and not listed.is_refused:
            self._remembered[name] = remembered = listed.devices.keys()
        effects, holds = self._connect([name], now), listing.holds
        if effects and listed.devices.keys() >= self.resources[name].holders.keys():
            holds = self.resources[name].holds
        elif effects:
            # pods hold devices that are not healthy
            self._long.add(name)
        self._made[name] = replace(listing, held=(), listed=NO_DEVICES, remembered=remembered, holds=holds)
        return effects + self.listed(name, _ENDPOINT, listed, now)

    def _connect(self, names: Iterable[str], now: float) -> list[Effect]:
        """A resource is shown once its list is made: before that nothing is known of its devices."""
        effects: list[Effect] = []
        for name in names:
            known = self.resources.get(name)
            if known is None or known.endpoint is None:
                effects += DeviceManager.connected(self, name, _ENDPOINT, PluginOptions(), now)
        return [*effects, *self._attribute()] if effects else []


def _held_names(state: KubeletState) -> Iterator[str]:
    yield from {row.resource_name for row in state.rows or ()}
