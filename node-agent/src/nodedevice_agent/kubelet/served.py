"""Resources that the kubelet's own device manager serves, as far as its pod resources and its checkpoint show them.

A Mirror whose device lists come from the kubelet, too. It reports healthy devices alone; one that was among them, or that a pod
holds, counts as unhealthy once it is not. The status of that pod may say so, seconds later; then it is the plugin's word. Those
that were never seen are a number: what the Node's capacity has besides. Nothing here is allocated, cordoned or advertised.
Source: kubelet pkg/kubelet/cm/devicemanager GetAllocatableDevices, GetCapacity, UpdateAllocatedResourcesStatus, checkpoint @ 1.37.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus

from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import MAX_SMALL_LIST, ListLimit
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.kubelet.attribution import KubeletState
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.readings import DevicesByID, PodReading

# Devices of all the kubelet's resources that are known by ID, some 300 octets each; of more, the longest lists are counted.
MOST_NAMED: Final = 65_536
# of the one connection that each resource has: the kubelet's
_ENDPOINT = 1
_REPORTED = "its plugin reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"
_NOT_ALLOCATABLE = "the kubelet does not list it as allocatable: its plugin reports it unhealthy, or is not connected"


class KubeletDevices(Struct, frozen=True):
    """The kubelet's healthy devices by resource name, also of a resource that has none left.

    are_names_complete: whether a resource that is not here is not the kubelet's any more; False where the checkpoint is unreadable.
    """

    healthy: Mapping[str, DevicesByID] = field(default_factory=dict)
    are_names_complete: bool = True


def devices_of(found: PodReading, before: Mapping[str, DevicesByID]) -> KubeletDevices:
    """With the names in the checkpoint: a resource without any healthy device is only there. Of a kubelet that does not list
    devices they are its alone, with the NUMA nodes that were known before; where both are missing, all stay.
    """
    if found.checkpoint is None:
        return KubeletDevices(before if found.devices is None else found.devices, are_names_complete=False)
    names = found.checkpoint.registered
    if found.devices is not None:
        return KubeletDevices({**{name: {} for name in names}, **found.devices})
    known: Mapping[str, DevicesByID] = {name: before.get(name, {}) for name in names}
    return KubeletDevices({name: {i: known[name].get(i, ()) for i in ids} for name, ids in names.items()})


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
        # IDs that were healthy before, by resource name
        self._remembered: dict[str, frozenset[str]] = {}
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
        effects: list[Effect] = []
        for name in self._healthy:
            known = self.resources.get(name)
            if known is None or known.endpoint is None:
                effects += self.connected(name, _ENDPOINT, PluginOptions(), now)
        if found.are_names_complete:
            for name in self.resources.keys() - self._healthy.keys():
                effects += self.disconnected(name, _ENDPOINT, now)
        for name in names:
            # its plugin may be gone, and its pods run on
            if name in placed and name not in self.resources:
                self._table.add(name)
                effects.append(Publish(name))
        effects += self.mirrored(state, now)
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
            lost = (device.id for device in devices if device.reason == Reason.NOT_ALLOCATABLE)
            self._remembered[resource_name] = self._remembered.get(resource_name, frozenset()).union(lost)
            self._list(now)

    def forget(self, resource_name: str) -> bool:
        """The same, with the devices that are remembered of it."""
        is_forgotten = super().forget(resource_name)
        if is_forgotten:
            self._remembered.pop(resource_name, None)
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
        effects: list[Effect] = []
        all_reported = frozenset[tuple[str, str]]().union(*self._reported.values())
        is_much = sum(map(len, self._healthy.values())) > MOST_NAMED
        most = max(MAX_SMALL_LIST, MOST_NAMED // len(self._healthy)) if is_much else MOST_NAMED
        for name, healthy in self._healthy.items():
            resource = self.resources[name]
            reported = {device_id for resource_name, device_id in all_reported if resource_name == name}
            lost = self._lost(resource, healthy, reported)
            named = _named(resource, healthy, most)
            devices = [Device(str(i), numa_nodes=healthy[i]) for i in named]
            for device_id in lost:
                known = resource.devices.get(device_id)
                numa = known.numa_nodes if known is not None else ()
                message = _REPORTED if device_id in reported else _NOT_ALLOCATABLE
                devices.append(Device(device_id, False, numa, Reason.NOT_ALLOCATABLE, message))
            listed = accept(devices, known=resource.listed, counted=len(healthy) - len(named))
            self._remembered[name] = frozenset(listed.devices)
            effects += self.listed(name, _ENDPOINT, listed, now)
        return effects

    def _lost(self, resource: Resource, healthy: DevicesByID, reported: Collection[str]) -> list[str]:
        """Devices that were healthy, or are held, and are not healthy now. Not more than the Node counts: the others are gone.

        reported: what pods hold, by their status.
        """
        held = sorted({*resource.holders, *reported}.difference(healthy))
        free = sorted(self._remembered.get(resource.name, frozenset()).difference(healthy, held))
        # -1 or less: not read yet, or before the devices came
        room = self._capacity.get(resource.name, -1) - len(healthy) - len(held)
        return held + (free if room < 0 else free[:room])


def _named(resource: Resource, healthy: DevicesByID, most: int) -> Collection[str]:
    """The healthy devices that are known by ID: of a long list those that pods hold, those of before, and the first others."""
    if len(healthy) <= most:
        return healthy
    held = resource.holders.keys() & healthy
    kept = chain(sorted(held), filter(healthy.__contains__, resource.devices), healthy)
    return list(islice(dict.fromkeys(kept), max(most, len(held))))


def _held_names(state: KubeletState) -> Iterator[str]:
    yield from {row.resource_name for row in state.rows or ()}
