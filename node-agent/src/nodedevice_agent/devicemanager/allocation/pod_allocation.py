"""One pod's allocation as a transaction: all containers get their devices, or none keeps any.

Needs are met one after another in the kubelet's order. Devices are reserved the moment they are chosen, so that nothing
that happens while a plugin is asked can give them to another pod; a transaction that fails takes back just what it reserved.
Source: kubelet device manager, devicesToAllocate (order of choice, reuse of init containers' devices); unlike it, nothing
leaks when a step fails (kubernetes#130145) and no other transaction's reservation is dropped (kubernetes#137534).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, AllocationBook, by_numa
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.pods import ContainerKind, Need, Pod
from nodedevice_agent.devicemanager.resource import Resource


@dataclass(slots=True)
class Admission:
    """What has been chosen and answered for a pod so far."""

    pod: Pod
    needs: list[Need]
    # the ticket of the call in flight, if any, and the devices it is about
    ticket: int | None = None
    chosen: tuple[str, ...] = ()
    answers: list[Allocation] = field(default_factory=list)
    # by container, once decided: the NUMA nodes its devices come from first; None where any will do
    affinities: dict[str, frozenset[int] | None] = field(default_factory=dict)
    # False where a plugin's advice for one container has left no aligned devices for another
    heeds_advice: bool = True
    # what is to be met next; None when all is
    need: Need | None = field(init=False)
    _position: int = 0
    _reserved: dict[str, set[str]] = field(default_factory=dict)
    _reusable: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.need = self.needs[0] if self.needs else None

    def lacking(self, resources: Mapping[str, Resource], book: AllocationBook) -> tuple[Need, int] | None:
        """The first need that cannot be met as things stand, with how many devices it misses.

        Counts only, nothing is chosen; needs that are met already cost nothing.
        """
        free: dict[str, int] = {}
        held_of_init: dict[str, set[str]] = {}
        to_be_reused: dict[str, int] = {}
        for need in self.needs:
            name = need.resource_name
            resource, mine = resources[name], held_of_init.setdefault(name, set())
            held = book.of(self.pod.uid, need.container, name)
            if held is not None:
                _hand_on(mine, need, held.device_ids)
                continue
            if name not in free:
                free[name] = resource.free_count(book.holders(name))
            # an init container's device that broke since is not used again
            usable = sum(map(resource.is_usable, mine)) + to_be_reused.get(name, 0)
            reused = min(need.count, usable)
            fresh = need.count - reused
            if fresh > free[name] or not resource.is_ready:
                return need, fresh
            free[name] -= fresh
            to_be_reused[name] = to_be_reused.get(name, 0) + (fresh if need.kind is ContainerKind.INIT else -reused)
        return None

    def skip_held(self, book: AllocationBook) -> Allocation | None:
        """Pass over needs that are met already. Returns an allocation whose count differs from what is asked, if any."""
        while (need := self.need) is not None:
            held = book.of(self.pod.uid, need.container, need.resource_name)
            if held is None:
                return None
            if len(held.device_ids) != need.count:
                return held
            self._pass(need, held.device_ids)
        return None

    def reusable(self, resource: Resource) -> tuple[str, ...]:
        """Devices of earlier init containers that the current need may take, sorted."""
        return tuple(i for i in sorted(self._reusable.get(resource.name, ())) if resource.is_usable(i))

    def reserve(self, resource: Resource, device_ids: Iterable[str]) -> None:
        """Choose these for the current need; those not yet this pod's own become reserved for it."""
        self.chosen = tuple(sorted(device_ids))
        mine = self._reserved.setdefault(resource.name, set())
        reusable = self._reusable.get(resource.name, set())
        for device_id in self.chosen:
            if device_id not in reusable:
                resource.reserved[device_id] = self.pod.uid
                mine.add(device_id)

    def answered(self, resource: Resource, response: AllocateResponse) -> None:
        """The plugin has allocated the chosen devices to the current need."""
        need = self.need
        assert need is not None
        ids_by_numa = by_numa(self.chosen, resource.numa_nodes(self.chosen))
        container, name = need.container, need.resource_name
        self.answers.append(Allocation(self.pod.uid, container, name, ids_by_numa, response.octets, response.edits))
        self.ticket = None
        self.advance()

    def advance(self) -> None:
        """The current need has what was chosen for it; on to the next."""
        assert self.need is not None
        self._pass(self.need, self.chosen)

    def has_lost(self, resources: Mapping[str, Resource]) -> bool:
        """Whether a device that was chosen so far, answered for or not, may no longer be given out."""
        asked = [] if self.need is None else [(self.need.resource_name, self.chosen)]
        all_chosen = (*asked, *((answer.resource_name, answer.device_ids) for answer in self.answers))
        return any(not resources[name].is_usable(i) for name, device_ids in all_chosen for i in device_ids)

    def reserved(self) -> Iterable[tuple[str, str]]:
        """Every (resource name, device ID) that this transaction reserved."""
        for resource_name, device_ids in self._reserved.items():
            for device_id in device_ids:
                yield resource_name, device_id

    def _pass(self, need: Need, device_ids: tuple[str, ...]) -> None:
        _hand_on(self._reusable.setdefault(need.resource_name, set()), need, device_ids)
        self._position += 1
        self.need = self.needs[self._position] if self._position < len(self.needs) else None


def _hand_on(reusable: set[str], need: Need, device_ids: Iterable[str]) -> None:
    """What those after this container may use again: an init container's devices, and none that another keeps."""
    if need.kind is ContainerKind.INIT:
        reusable.update(device_ids)
    else:
        reusable.difference_update(device_ids)
