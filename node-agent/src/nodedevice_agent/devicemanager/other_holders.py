"""Who else has a device file, whichever plugin named it: the last look before a container is made. Pure.

What a container was made with it can open, also after its device has come back with another number, and the old one has passed to
another device. So the numbers in running containers count beside those of held devices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, AllocationBook
from nodedevice_agent.devicemanager.resources.claims import Claim, winners
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.runtime import RuntimeContainers
from nodedevice_agent.identity import Identity


class Holder(Struct, frozen=True):
    """A held device, and the pod that has it."""

    resource_name: str
    device_id: str
    pod_uid: str


class OtherHolders:
    """What pods hold, and what the runtime runs."""

    def __init__(self, resources: Mapping[str, Resource], book: AllocationBook, containers: RuntimeContainers) -> None:
        self._resources = resources
        self._book = book
        self._containers = containers

    def given_numbers(self) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
        """Of the device files in running containers, as GivenNumbers."""
        for container in self._containers:
            held = self._book.of_container(container.pod_uid, container.container) if container.devices else []
            shared = [a for a in held if self._is_shared(a)]
            alone = [a for a in held if a not in shared]
            # a file that no response names any more was given with an earlier one
            may_share = _paths(shared) - _paths(alone)
            for allocations, is_shared in ((alone, False), (shared, True)):
                files = (f for f in container.devices if (f.path in may_share) == is_shared or not alone)
                numbers = tuple(f"{file.type}{file.major}:{file.minor}" for file in files)
                if allocations and numbers:
                    yield allocations[0].resource_name, allocations[0].device_ids[0], numbers, is_shared

    def _is_shared(self, allocation: Allocation) -> bool:
        """Whether somebody else's plugin shares its files is not known, and several of its devices may have one."""
        resource = self._resources[allocation.resource_name]
        identities = [resource.identity_of(device_id) for device_id in allocation.device_ids]
        return any(identity is None or identity.is_shared for identity in identities)

    def of(self, pod_uid: str, numbers: Collection[str]) -> Holder | None:
        """A device that is not shared, that another pod holds, and that has one of these numbers, or is a device of this pod."""
        return self._by_number(pod_uid, numbers) or self._in_a_container(pod_uid, numbers) or self._same(pod_uid)

    def _by_number(self, pod_uid: str, numbers: Collection[str]) -> Holder | None:
        listed = self._listed_tokens()
        for holder, identity in self._held():
            if holder.pod_uid == pod_uid or identity.is_shared:
                continue
            is_listed = holder.device_id in self._resources[holder.resource_name].devices
            # the number of a device that is gone may be another's by now
            known = identity.tokens if is_listed else {*identity.tokens} - listed
            if not set(known).isdisjoint(numbers):
                return holder
        return None

    def _in_a_container(self, pod_uid: str, numbers: Collection[str]) -> Holder | None:
        # files that all containers have, such as /dev/nvidiactl, are no device's own
        own = self._listed_tokens().intersection(numbers)
        if not own:
            return None
        # a file that was shared may be one by now that this pod has alone
        alone = own & self._alone(pod_uid)
        for resource_name, device_id, given, is_shared in self.given_numbers():
            holder = self._resources[resource_name].holders[device_id]
            if holder != pod_uid and not (alone if is_shared else own).isdisjoint(given):
                return Holder(resource_name, device_id, holder)
        return None

    def _alone(self, pod_uid: str) -> set[str]:
        """What this pod's devices are that no other pod may have beside it."""
        held = ((holder, identity) for holder, identity in self._held() if holder.pod_uid == pod_uid)
        return {token for _, identity in held if not identity.is_shared for token in identity.tokens}

    def _same(self, pod_uid: str) -> Holder | None:
        """Two pods may hold one device where a name of the kernel's has passed to it: one of them runs with it at a time."""
        mine, others = [], []
        for holder, identity in self._held():
            is_listed = self._resources[holder.resource_name].reported(holder.device_id) is not None
            claim = Claim((holder.resource_name, holder.device_id), identity, is_listed=is_listed)
            if holder.pod_uid == pod_uid:
                mine.append(claim)
            elif self._containers.of_pod(holder.pod_uid):
                others.append(claim)
        for winner in winners(others, mine).values() if mine and others else ():
            name, device_id = winner.key
            if (holds := self._resources[name].holders[device_id]) != pod_uid:
                return Holder(name, device_id, holds)
        return None

    def _held(self) -> Iterator[tuple[Holder, Identity]]:
        for resource in self._resources.values():
            for device_id, pod_uid in resource.holders.items() if resource.says_what_devices_are else ():
                identity = resource.identity_of(device_id)
                if identity is not None:
                    yield Holder(resource.name, device_id, pod_uid), identity

    def _listed_tokens(self) -> set[str]:
        naming = [resource for resource in self._resources.values() if resource.listed.has_identities]
        return {token for resource in naming for device in resource.devices.values() for token in device.identity}


def _paths(allocations: Iterable[Allocation]) -> set[str]:
    """Of device files in a container, as their responses name them."""
    return {file.container_path for a in allocations if a.edits is not None for file in a.edits.devices}
