"""Resources that the kubelet's own device manager serves, as far as its pod resources and its checkpoint show them.

A device manager of its own gets both the allocations and the device lists from the kubelet. The kubelet reports healthy devices
alone. A device that was healthy, or that a pod holds, counts as unhealthy once the kubelet does not report it. The status of its
pod may say so, seconds later; then it is the plugin's word. Devices that were never seen are a number: what the Node's capacity has
besides. Nothing here is allocated, cordoned or advertised.
Source: kubelet pkg/kubelet/cm/devicemanager GetAllocatableDevices, GetCapacity, UpdateAllocatedResourcesStatus, checkpoint @ 1.37.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus

from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, unordered
from nodedevice_agent.devicemanager.effects import Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
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


class ServedByKubelet:
    """read() after each look at the kubelet; pods as in every device manager. settle() after each event."""

    def __init__(self, now: float) -> None:
        self.manager = DeviceManager(
            now, waits_for_cordons=True, is_attributed=lambda name: True, make_list_limit=_NoLimit
        )
        self.resources, self.pods, self.places = self.manager.resources, self.manager.pods, self.manager.places
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
        self._attributed: tuple[object, ...] | None = None
        # resources whose list is too long to be made in the event loop, see next_listing()
        self._long: set[str] = set()
        # of these the published devices are remembered
        self._published: set[str] = set()
        # by pod UID: resource name and ID of devices that its status reports unhealthy
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}
        self._are_lists_due = False

    # -- changes ----------------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> list[str]:
        """After each event. Returns the resources that may have changed: nothing is called or saved for what the kubelet serves."""
        found = [*self.manager.settle(now)]
        if self._are_lists_due:
            self._are_lists_due = False
            self._list(now)
            found += self.manager.settle(now)
        return list(dict.fromkeys(effect.resource_name for effect in found if isinstance(effect, Publish)))

    def read(self, found: KubeletDevices, state: KubeletState, now: float) -> None:
        """What the kubelet has now. Where its pod resources could not be read, the last allocations stay."""
        known = dict.fromkeys([*found.healthy, *(row.resource_name for row in state.rows or ())])
        names = [name for name in known if not resource_name_problem(name)]
        placed = self.places.placed(names)
        self.without_place = len(names) - len(placed)
        self._healthy = {name: ids for name, ids in found.healthy.items() if name in placed}
        self._omitted = found.omitted
        before = {*self.resources}
        if found.are_names_complete:
            for name in self.resources.keys() - self._healthy.keys():
                self.manager.table.disconnected(name, _ENDPOINT, now)
        for name in names:
            # its plugin may be gone, and its pods run on
            if name in placed and name not in self.resources and name not in self._healthy:
                self.manager.add(name)
        attributed = unordered(state.entries), state.rows
        if attributed != self._attributed or before != self.resources.keys():
            self.manager.attribution.read(state)
            self._attributed = attributed
        self._are_lists_due = True

    def capacity_is(self, capacity: Mapping[str, int]) -> None:
        """What the Node shows: also devices that are not healthy, seconds after the kubelet knows of them."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._are_lists_due = True
            self.manager.publish(self.resources)

    def pods_synced(self, pods: Iterable[Pod], now: float) -> None:
        """The complete list of this node's pods."""
        found = list(pods)
        self.places.are_pods_known = True
        self._reported = {pod.uid: pod.unhealthy for pod in found if pod.unhealthy and not pod.has_ended}
        self.manager.pod_events.synced(found, now)
        self._are_lists_due = True

    def pod_seen(self, pod: Pod, now: float) -> None:
        """A pod bound to this node, new or changed; also in what its status says of its devices."""
        self.manager.pod_events.seen(pod, now)
        self._report(pod.uid, frozenset() if pod.has_ended else pod.unhealthy)

    def pod_gone(self, pod_uid: str, now: float) -> None:
        """The pod has finished, or the API no longer has it."""
        self.manager.pod_events.gone(pod_uid, now)
        self._report(pod_uid, frozenset())

    def tick(self, now: float) -> None:
        self.manager.tick(now)

    def displaced(self, resource_names: Iterable[str], by: str) -> None:
        """Their places are that name's."""
        self.manager.table.displaced([name for name in resource_names if name in self.resources], by)

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
        """The same as of a device manager, with the devices that are remembered of it."""
        is_forgotten = self.manager.forget(resource_name)
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
        now = snapshot(self.manager, resource_name)
        return replace(now, total=max(now.total, self._capacity.get(resource_name, 0) if now.is_live else 0))

    # -- internals --------------------------------------------------------------------------------------------------------

    def _report(self, pod_uid: str, unhealthy: frozenset[tuple[str, str]]) -> None:
        if unhealthy == self._reported.get(pod_uid, frozenset()):
            return
        if unhealthy:
            self._reported[pod_uid] = unhealthy
        else:
            del self._reported[pod_uid]
        self._are_lists_due = True

    def _list(self, now: float) -> None:
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
        self._connect([listing.name for listing in short], now)
        left = MAX_DEVICES_IN_LOOP
        for before in short:
            # with what pods hold of it, as far as that shows only now; it may be far more
            listing = self._listing(before.name, before.reported)
            if (left := left - listing.size) < 0:
                self._long.add(listing.name)
            else:
                self.listing_made(listing, listing.made(), now)

    def _listing(self, name: str, reported: frozenset[str]) -> Listing:
        resource = self.resources.get(name)
        return Listing(
            name,
            self._healthy[name],
            resource.use.holders.keys() if resource is not None else (),
            reported,
            self._remembered.get(name, _NO_IDS),
            self._capacity.get(name, -1),
            self._omitted.get(name, 0),
            resource.listed if resource is not None else NO_DEVICES,
            resource.use.holds if resource is not None and resource.newest.endpoint is not None else _NOT_CONNECTED,
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

    def listing_made(self, listing: Listing, listed: ListedDevices, now: float) -> None:
        """That list is the resource's; what has changed while it was made is made next."""
        name, remembered = listing.name, listing.remembered
        if name not in self._healthy:
            return
        if self._remembered.get(name, _NO_IDS) is remembered and not listed.is_refused:
            self._remembered[name] = remembered = listed.devices.keys()
        is_new, holds = self._connect([name], now), listing.holds
        if is_new and listed.devices.keys() >= self.resources[name].use.holders.keys():
            holds = self.resources[name].use.holds
        elif is_new:
            # pods hold devices that are not healthy
            self._long.add(name)
        self._made[name] = replace(listing, held=(), listed=NO_DEVICES, remembered=remembered, holds=holds)
        self.manager.listed(name, _ENDPOINT, listed, now)

    def _connect(self, names: Iterable[str], now: float) -> bool:
        """A resource is shown once its list is made: before that nothing is known of its devices. Returns whether one is new here.

        What pods hold of it counts from then on.
        """
        new = [name for name in names if name not in self.resources or self.resources[name].newest.endpoint is None]
        for name in new:
            self.manager.connected(name, _ENDPOINT, PluginOptions(), now)
        if new:
            self.manager.attribution.settle()
        return bool(new)
