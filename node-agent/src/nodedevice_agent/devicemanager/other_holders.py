"""Finds the other holder of a device file under any plugin: the last check before a container is created. Pure.

A container can open its files by number, even after its device was renumbered and the number passed to another device. Therefore
the numbers in running containers count in addition to the numbers of held devices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.same_device_winners import Claim, Key, winners
from nodedevice_agent.devicemanager.runtime import RuntimeContainers


class Holder(Struct, frozen=True):
    """A held device, and the pod that has it."""

    resource_name: str
    device_id: str
    pod_uid: str


class OtherHolders(Struct, eq=False):
    """The devices that pods hold, and the containers of the runtime."""

    _resources: Mapping[str, Resource]
    _book: AllocationBook
    _containers: RuntimeContainers

    def given_numbers(self) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
        """The numbers of device files in running containers, as GivenNumbers."""
        for container in self._containers:
            held = self._book.of_container(container.pod_uid, container.container) if container.devices else []
            shared = [a for a in held if self._is_shared(a)]
            alone = [a for a in held if a not in shared]
            # a file that responses no longer name came with an earlier response
            may_share = _paths(shared) - _paths(alone)
            for allocations, is_shared in ((alone, False), (shared, True)):
                files = (f for f in container.devices if (f.path in may_share) == is_shared or not alone)
                numbers = tuple(f"{file.type}{file.major}:{file.minor}" for file in files)
                if allocations and numbers:
                    yield allocations[0].resource_name, allocations[0].device_ids[0], numbers, is_shared

    def _is_shared(self, allocation: Allocation) -> bool:
        """Whether other containers may share its files: for an unknown identity it cannot be excluded."""
        resource = self._resources[allocation.resource_name]
        identities = [resource.identities.of(device_id) for device_id in allocation.device_ids]
        return any(identity is None or identity.is_shared for identity in identities)

    def of(self, pod_uid: str, numbers: Collection[str]) -> Holder | None:
        """Find an exclusive device of another pod that has one of these numbers, or is a device of this pod."""
        naming = [resource for resource in self._resources.values() if resource.identities.are_known]
        held = [*_held(naming)] if naming else []
        mine = [claim for claim in held if self._pod(claim.key) == pod_uid]
        others = [claim for claim in held if self._pod(claim.key) != pod_uid]
        # files that all containers have, such as /dev/nvidiactl, belong to no single device
        listed = {t for r in naming for device in r.devices.values() for t in device.identity if t in numbers}
        key = self._by_number(others, {*numbers}, listed) or self._in_a_container(pod_uid, mine, listed)
        key = key or self._same(mine, others)
        return Holder(*key, self._pod(key)) if key is not None else None

    def _pod(self, key: Key) -> str:
        return self._resources[key[0]].use.holders[key[1]]

    def _by_number(self, others: Iterable[Claim], numbers: set[str], listed: set[str]) -> Key | None:
        for claim in others:
            name, device_id = claim.key
            # the number of a removed device may now belong to another one
            known = numbers if device_id in self._resources[name].devices else numbers - listed
            if not claim.identity.is_shared and not known.isdisjoint(claim.identity.tokens):
                return claim.key
        return None

    def _in_a_container(self, pod_uid: str, mine: Iterable[Claim], listed: set[str]) -> Key | None:
        # a formerly shared file may now belong to this pod alone
        alone = {token for claim in mine if not claim.identity.is_shared for token in claim.identity.tokens} & listed
        for name, device_id, given, is_shared in self.given_numbers() if listed else ():
            is_given = not (alone if is_shared else listed).isdisjoint(given)
            if is_given and self._pod((name, device_id)) != pod_uid:
                return name, device_id
        return None

    def _same(self, mine: Collection[Claim], others: Iterable[Claim]) -> Key | None:
        """Two pods may hold one device after a kernel name passed to it: only one of them runs with it at a time."""
        running = [claim for claim in others if mine and self._containers.of_pod(self._pod(claim.key))]
        own = {claim.key for claim in mine}
        found = (winner.key for winner in winners(running, mine).values()) if running else ()
        return next((key for key in found if key not in own), None)


def _held(resources: Iterable[Resource]) -> Iterator[Claim]:
    for resource in resources:
        for device_id in resource.use.holders:
            identity, is_listed = resource.identities.of(device_id), resource.reported(device_id) is not None
            if identity is not None:
                yield Claim((resource.name, device_id), identity, is_listed=is_listed)


def _paths(allocations: Iterable[Allocation]) -> set[str]:
    """Numbers of device files in a container, as their responses name them."""
    return {file.container_path for a in allocations if a.edits is not None for file in a.edits.devices}
