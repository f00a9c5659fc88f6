"""The committed allocations: the holder of each device."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs
from nodedevice_api.extended_resources import domain_of

from nodedevice_agent.devicemanager.allocation import answer_limit
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource


class AllocationBook(Struct, eq=False):
    """All committed allocations. resources: every resource with allocations; the `holders` of each are kept up to date here."""

    resources: Mapping[str, Resource]
    # by pod UID, then by container and resource name
    by_pod: dict[str, dict[tuple[str, str], Allocation]] = {}
    # pods that have ended in the API and still hold their devices: by UID, since when (monotonic seconds)
    releasing: dict[str, float] = {}
    # allocations without a response
    unanswered: dict[AllocationKey, Allocation] = {}
    # resources with device IDs whose original is not known
    without_originals: set[str] = set()
    # size of the responses
    _kept: int = 0

    def add(self, allocation: Allocation) -> None:
        """Add or replace one container's entry. Raises ValueError if another pod holds one of its devices."""
        pod_uid, resource = allocation.pod_uid, self.resources[allocation.resource_name]
        holders = resource.use.holders
        for device_id in holders.keys() & allocation.device_ids:
            if holders[device_id] != pod_uid:
                raise ValueError(f"{allocation.resource_name} {device_id} is held by pod {holders[device_id]}")
        holders.update(dict.fromkeys(allocation.device_ids, pod_uid))
        resource.use.holds += 1
        entries = self.by_pod.setdefault(pod_uid, {})
        before = entries.get((allocation.container, allocation.resource_name))
        entries[allocation.container, allocation.resource_name] = allocation
        self._kept += allocation.octets - (before.octets if before else 0)
        if allocation.response is None:
            self.unanswered[allocation.key] = allocation
        elif self.unanswered:
            self.unanswered.pop(allocation.key, None)

    def restore(self, allocation: Allocation) -> None:
        """Restore an allocation after a restart. One from the API only has the shown form of a device ID; one of an earlier release
        has no delivery.
        """
        delivery = allocation.delivery or self.resources[allocation.resource_name].delivery
        self.add(structs.replace(allocation, delivery=delivery))
        if not allocation.has_originals:
            self.without_originals.add(allocation.resource_name)

    def learn_originals(self, resource: Resource) -> None:
        """A plugin has listed devices of this resource: set their original IDs, which an allocation from the API lacks."""
        for allocation in self.of_resource(resource.name):
            self.add(_with_originals(allocation, resource.devices))
        if all(allocation.has_originals for allocation in self.of_resource(resource.name)):
            self.without_originals.discard(resource.name)

    def lacks_original(self, allocation: Allocation) -> bool:
        """Whether the recorded ID of one of its devices may be unknown to the plugin."""
        return allocation.resource_name in self.without_originals and not allocation.has_originals

    def release(self, pod_uid: str) -> frozenset[str]:
        """Remove a pod's allocations. Returns their resource names."""
        self.releasing.pop(pod_uid, None)
        released = self.by_pod.pop(pod_uid, {}).values()
        for allocation in released:
            self._free(allocation)
        return frozenset([allocation.resource_name for allocation in released])

    def rename(self, pod_uid: str, known_as: str) -> None:
        """Move a pod's allocations to another UID; ignored if that one already holds devices."""
        if known_as in self.by_pod:
            return
        self.releasing.pop(pod_uid, None)
        for allocation in self.by_pod.pop(pod_uid, {}).values():
            self._free(allocation)
            self.add(structs.replace(allocation, pod_uid=known_as))

    def drop(self, allocation: Allocation) -> None:
        """Remove this allocation, and allocations of the same pod that share a device with it."""
        entries = self.by_pod[allocation.pod_uid]
        del entries[allocation.container, allocation.resource_name]
        if not entries:
            self.release(allocation.pod_uid)
        self._free(allocation)

    def _free(self, allocation: Allocation) -> None:
        if self.unanswered:
            self.unanswered.pop(allocation.key, None)
        self._kept -= allocation.octets
        resource = self.resources[allocation.resource_name]
        resource.use.holds += 1
        for device_id in allocation.device_ids:
            resource.use.holders.pop(device_id, None)

    def no_room(self, made: Allocation, uncommitted: Iterable[Allocation]) -> str:
        """Why the response exceeds the limit; "" if it fits. uncommitted: the allocations of transactions in progress."""
        before, uncommitted = self.of(*made.key), tuple(uncommitted)
        octets = made.octets - (before.octets if before else 0)
        if self._kept + octets + sum(a.octets for a in uncommitted) <= answer_limit.MAX_OCTETS_OF_DOMAIN:
            return ""
        kept: Counter[str] = Counter()
        for allocation in (*self, *uncommitted):
            kept[domain_of(allocation.resource_name)] += allocation.octets
        return answer_limit.answer_problem(made.resource_name, octets, kept)

    def set_releasing(self, pod_uid: str, now: float) -> frozenset[str]:
        """The pod has ended in the API, but its containers are not known to have ended. Returns the resource names affected."""
        if pod_uid not in self.by_pod or pod_uid in self.releasing:
            return frozenset()
        self.releasing[pod_uid] = now
        return self.names_of_pod(pod_uid)

    def set_held_again(self, pod_uid: str) -> frozenset[str]:
        """The pod is in the API again: a static pod's mirror pod was recreated. Returns the resource names affected."""
        return frozenset() if self.releasing.pop(pod_uid, None) is None else self.names_of_pod(pod_uid)

    def names_of_pod(self, pod_uid: str) -> frozenset[str]:
        return frozenset(resource_name for _, resource_name in self.by_pod.get(pod_uid, ()))

    def of(self, pod_uid: str, container: str, resource_name: str) -> Allocation | None:
        return self.by_pod.get(pod_uid, {}).get((container, resource_name))

    def of_pod(self, pod_uid: str) -> list[Allocation]:
        return list(self.by_pod.get(pod_uid, {}).values())

    def of_resource(self, resource_name: str) -> list[Allocation]:
        """Sorted by pod UID and container."""
        found = (a for a in self if a.resource_name == resource_name)
        return sorted(found, key=lambda a: (a.pod_uid, a.container))

    def of_container(self, pod_uid: str, container: str) -> list[Allocation]:
        found = [a for (name, _), a in self.by_pod.get(pod_uid, {}).items() if name == container]
        return sorted(found, key=lambda a: a.resource_name)

    def sharers(self, pod_uid: str, container: str) -> list[Allocation]:
        """The container's allocations, and other allocations of the pod that share a device with them."""
        mine = {(a.resource_name, i) for a in self.of_container(pod_uid, container) for i in a.device_ids}
        return [a for a in self.of_pod(pod_uid) if not mine.isdisjoint((a.resource_name, i) for i in a.device_ids)]

    def __iter__(self) -> Iterator[Allocation]:
        for entries in self.by_pod.values():
            yield from entries.values()


def _with_originals(allocation: Allocation, devices: Mapping[str, Device]) -> Allocation:
    """The same with the original IDs of listed devices. devices: by ID."""

    def listed(ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(devices[i].id if i in devices else i for i in ids)

    return structs.replace(allocation, ids_by_numa={node: listed(ids) for node, ids in allocation.ids_by_numa.items()})
