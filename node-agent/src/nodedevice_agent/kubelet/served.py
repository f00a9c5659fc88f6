"""Tracks the resources that the kubelet's own device manager serves, from its pod resources and its checkpoint.

The kubelet only reports healthy devices. A device that was healthy, or that a pod holds, counts as unhealthy once the kubelet
stops reporting it. Seconds later the pod's status may confirm that the plugin reported it. Devices that were never listed are only
a number: the rest of the Node's capacity. This module allocates, cordons and advertises nothing.
Source: kubelet pkg/kubelet/cm/devicemanager GetAllocatableDevices, GetCapacity, UpdateAllocatedResourcesStatus, checkpoint @ 1.37.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus

from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, unordered
from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.kubelet.readings import DevicesByID, PodReading

# each resource has one connection: the kubelet's
_ENDPOINT = 1
_REPORTED = "its plugin reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"
# devices that are listed in one turn of the event loop: each takes some ten microseconds
MAX_DEVICES_IN_LOOP = 1024
# replaces the count of changed holds before a resource is connected
_NOT_CONNECTED = -1
_NO_IDS: dict[str, tuple[int, ...]] = {}
_NOT_ALLOCATABLE = "the kubelet does not list it as allocatable: its plugin reports it unhealthy, or is not connected"


class KubeletDevices(Struct, frozen=True):
    """The kubelet's healthy devices by resource name, including resources without healthy devices.

    are_names_complete: whether the kubelet no longer serves missing resources; False if the checkpoint is unreadable.
    omitted: see HealthyDevices.
    """

    healthy: Mapping[str, DevicesByID] = field(default_factory=dict)
    are_names_complete: bool = True
    omitted: Mapping[str, int] = field(default_factory=dict)


def devices_of(found: PodReading, before: Mapping[str, DevicesByID]) -> KubeletDevices:
    """Combine listed devices with the checkpoint, which alone names resources without a healthy device.

    If neither is known, keeps `before`. The checkpoint has no NUMA nodes: the known ones stay.
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
    """Return devices with their known NUMA nodes; the same object if nothing has changed. A hundred thousand take milliseconds."""
    if len(ids) == len(known) and all(map(known.__contains__, ids)):
        return known
    return {i: known.get(i, ()) for i in ids} if known else dict.fromkeys(ids, ())


class Listing(Struct, frozen=True):
    """The inputs for the device list of one resource. If it has tens of thousands of devices, call made() in a thread.

    held: devices that pods hold. reported: held devices that the pods' status reports as unhealthy. remembered: devices that were
    healthy before. capacity: of the Node; negative if it was not read, or before the devices appeared. omitted: how many more
    healthy devices there are, without their IDs. holds: count of changed holds of the resource.
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
        """Number of devices to process."""
        return len(self.healthy) + len(self.held) + len(self.remembered)

    def is_like(self, made: "Listing | None") -> bool:
        """Whether the list would be the same, decided without comparing single devices."""
        if made is None or self.healthy is not made.healthy or self.remembered is not made.remembered:
            return False
        # the capacity only matters if a device is lost
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
        """Return unhealthy devices that were healthy before or are held. Free ones beyond the Node's capacity no longer exist."""
        held = sorted({*self.held, *self.reported}.difference(self.healthy))
        free = sorted({*self.remembered}.difference(self.healthy, held))
        room = self.capacity - len(self.healthy) - self.omitted - len(held)
        return held + (free if room < 0 else free[:room])


class _NoLimit(ListLimit):
    """Accepts every list of the kubelet: lists that are too long have a count instead of some devices."""

    def accepted(self, resource: Resource, endpoint: int, listed: ListedDevices) -> ListedDevices:
        return listed


class KubeletResources:
    """Call read() after each reading of the kubelet, and settle() after each event. Pods are handled as in every device manager."""

    def __init__(self, now: float) -> None:
        self.manager = DeviceManager(
            now, waits_for_cordons=True, is_attributed=lambda name: True, make_list_limit=_NoLimit
        )
        self.resources, self.pods, self.places = self.manager.resources, self.manager.pods, self.manager.places
        # the Node's capacity by resource name; empty until the first reading
        self._capacity: Mapping[str, int] = {}
        self._healthy: Mapping[str, DevicesByID] = {}
        # resource names of the kubelet beyond the node's limit; these are not published
        self.without_place = 0
        self._omitted: Mapping[str, int] = {}
        # IDs that were healthy before, by resource name
        self._remembered: dict[str, Collection[str]] = {}
        # the inputs of the last lists, by resource name, and of the last attribution
        self._made: dict[str, Listing] = {}
        self._attributed: tuple[object, ...] | None = None
        # resources whose list is too long for the event loop, see next_listing()
        self._long: set[str] = set()
        self._published: set[str] = set()
        # by pod UID: resource names and IDs of devices that its status reports as unhealthy
        self._reported: dict[str, frozenset[tuple[str, str]]] = {}
        self._are_lists_due = False
        # since the last settle()
        self._effects: list[Effect] = []

    def settle(self, now: float) -> list[str]:
        """Call after each event. Returns the resources that may have changed; other effects do not apply here."""
        self._effects += self.manager.settle(now)
        if self._are_lists_due:
            self._are_lists_due = False
            self._list(now)
            self._effects += self.manager.settle(now)
        found, self._effects = self._effects, []
        return list(dict.fromkeys(effect.resource_name for effect in found if isinstance(effect, Publish)))

    def read(self, found: KubeletDevices, state: KubeletState, now: float) -> None:
        """Apply the kubelet's current state. If its pod resources could not be read, the last allocations stay."""
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
            # its plugin may be gone while its pods still run
            if name in placed and name not in self.resources and name not in self._healthy:
                self.manager.add(name)
        attributed = unordered(state.entries), state.rows
        if attributed != self._attributed or before != self.resources.keys():
            self.manager.attribution.read(state)
            self._attributed = attributed
        self._are_lists_due = True

    def capacity_is(self, capacity: Mapping[str, int]) -> None:
        """Apply the Node's capacity. It includes unhealthy devices and lags the kubelet by seconds."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._are_lists_due = True
            self.manager.publish(self.resources)

    def pods_synced(self, pods: Iterable[Pod], now: float) -> None:
        """Apply the complete list of this node's pods."""
        pods = list(pods)
        self.places.are_pods_known = True
        self._reported = {pod.uid: pod.unhealthy for pod in pods if pod.unhealthy and not pod.has_ended}
        self.manager.pod_events.synced(pods, now)
        self._are_lists_due = True

    def pod_seen(self, pod: Pod, now: float) -> None:
        """Apply a new or changed pod of this node, including the health of its devices in its status."""
        self.manager.pod_events.seen(pod, now)
        self._report(pod.uid, frozenset() if pod.has_ended else pod.unhealthy)

    def pod_gone(self, pod_uid: str, now: float) -> None:
        """Forget a pod that has finished or was deleted."""
        self.manager.pod_events.gone(pod_uid, now)
        self._report(pod_uid, frozenset())

    def tick(self, now: float) -> None:
        self.manager.tick(now)

    def displaced(self, resource_names: Iterable[str], by: str) -> None:
        """Give the places of these resources to the name `by`."""
        self.manager.table.displaced([name for name in resource_names if name in self.resources], by)

    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None:
        """Remember the lost devices in the status that was published before this agent started. Only the first call counts."""
        if resource_name not in self._published:
            self._published.add(resource_name)
            lost = {device.id for device in devices if device.reason == Reason.NOT_ALLOCATABLE}
            known = self._remembered.get(resource_name, _NO_IDS)
            if not lost.issubset(known):
                self._remembered[resource_name] = lost.union(known)
            self._list(now)

    def forget(self, resource_name: str) -> bool:
        """Forget a resource and its remembered devices, see DeviceManager.forget(). Returns whether it is unknown now."""
        self.manager.forget(resource_name)
        is_forgotten = resource_name not in self.resources
        if is_forgotten:
            self._remembered.pop(resource_name, None)
            self._made.pop(resource_name, None)
            self._published.discard(resource_name)
        return is_forgotten

    def has_healthy(self, resource_name: str) -> bool:
        """Whether the kubelet can allocate a device of the resource now."""
        return bool(self._healthy.get(resource_name))

    def snapshot(self, resource_name: str) -> Snapshot:
        """Return a snapshot whose total includes devices that the kubelet only counts. Raises KeyError for an unknown resource."""
        now = snapshot(self.manager, resource_name)
        return replace(now, total=max(now.total, self._capacity.get(resource_name, 0) if now.is_live else 0))

    def _report(self, pod_uid: str, unhealthy: frozenset[tuple[str, str]]) -> None:
        if unhealthy != self._reported.pop(pod_uid, frozenset()):
            self._are_lists_due = True
        if unhealthy:
            self._reported[pod_uid] = unhealthy

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
            # connecting may have revealed many more held devices
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
        """Return the current inputs of a resource with a long list. Call made() in a thread, then listing_made()."""
        for name in [*self._long]:
            reported = {i for devices in self._reported.values() for of_name, i in devices if of_name == name}
            found = self._listing(name, frozenset(reported))
            if not found.is_like(self._made.get(name)):
                return replace(found, held=frozenset(found.held))
            # until its list was made: that may fail
            self._long.discard(name)
        return None

    def listing_made(self, listing: Listing, listed: ListedDevices, now: float) -> None:
        """Apply a list. Changes during its making lead to another one."""
        name, remembered = listing.name, listing.remembered
        if name not in self._healthy:
            return
        if self._remembered.get(name, _NO_IDS) is remembered and not listed.is_refused:
            self._remembered[name] = remembered = listed.devices.keys()
        is_new, holds = self._connect([name], now), listing.holds
        if is_new and listed.devices.keys() >= self.resources[name].use.holders.keys():
            holds = self.resources[name].use.holds
        elif is_new:
            # pods hold unhealthy devices
            self._long.add(name)
        self._made[name] = replace(listing, held=(), listed=NO_DEVICES, remembered=remembered, holds=holds)
        self.manager.listed(name, _ENDPOINT, listed, now)

    def _connect(self, names: Iterable[str], now: float) -> bool:
        """Connect resources that have a list for the first time; until then they are not published. Returns whether one is new."""
        new = [name for name in names if name not in self.resources or self.resources[name].newest.endpoint is None]
        for name in new:
            self.manager.connected(name, _ENDPOINT, PluginOptions(), now)
        if new:
            # the devices that pods hold of it are in its list
            self._effects += self.manager.settle(now)
        return bool(new)
