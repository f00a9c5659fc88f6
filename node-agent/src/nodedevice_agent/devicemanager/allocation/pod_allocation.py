"""One pod's allocation as a transaction, and why a pod's allocation is pending.

Either every container gets its devices, or no container keeps any. Requests are met one after another in the kubelet's order.
Devices are reserved when they are chosen, so that no other pod gets them during a call to a plugin. A failed transaction releases
exactly the devices that it reserved.
The kubelet fails a pod without enough devices permanently (UnexpectedAdmissionError); here its allocation stays pending. A shortage
of devices is retried when something about the resource changes; a failed plugin call is retried with exponential backoff.
Source: kubelet device manager, devicesToAllocate (order of choice, reuse of init containers' devices); unlike it, nothing leaks
when a step fails (kubernetes#130145) and no other transaction's reservation is dropped (kubernetes#137534).
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec
from msgspec import structs
from nodedevice_api.names import Reason
from nodedevice_api.parts import Placement
from nodedevice_common.pacing import exponential_seconds
from nodedevice_kube.planner import Misfit, Need, first_short, problem

from nodedevice_agent.devicemanager.allocation.assignments import NOT_ASSIGNED, Assignments
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.parts import Parents, are_linked
from nodedevice_agent.devicemanager.allocation.selection import Crowds, Selection, crowds, select
from nodedevice_agent.devicemanager.allocation.stored_responses import is_outdated, listed_names, recorded_files
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.pods import ContainerKind, DeviceRequest, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, by_numa
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0


class PendingAllocation(msgspec.Struct, frozen=True):
    """Why a container has no devices of a resource yet. retry_at: monotonic seconds, or None if only a change triggers a retry.

    attempts: failed calls so far. others: further resources whose change also triggers a retry. is_final: it is not retried.
    """

    pod_uid: str
    container: str
    resource_name: str
    reason: str
    message: str
    attempts: int = 0
    retry_at: float | None = None
    others: frozenset[str] = frozenset()
    is_final: bool = False

    def is_due(self, now: float) -> bool:
        return self.retry_at is None or self.retry_at <= now

    def retried_after(self, earlier: "PendingAllocation | None", now: float) -> "PendingAllocation":
        """A copy with one more failed attempt than `earlier`, and a backoff that starts now."""
        attempts = (earlier.attempts if earlier else 0) + 1
        # 1, 2, 4, ... 60 seconds
        pause = exponential_seconds(attempts - 1, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        return structs.replace(self, attempts=attempts, retry_at=now + pause)


class Free(msgspec.Struct, frozen=True):
    """at_nodes: the devices by their sets of NUMA nodes; empty without NUMA nodes."""

    ids: tuple[str, ...]
    at_nodes: Crowds


class PodAllocation(msgspec.Struct):
    """The devices chosen and allocated for a pod so far."""

    pod: Pod
    requests: list[DeviceRequest]
    book: AllocationBook
    # the ticket of the call in flight, if any, and the devices it concerns
    ticket: int | None = None
    chosen: tuple[str, ...] = ()
    # the names of their files at the call
    called_with: frozenset[str] = frozenset()
    allocated: list[Allocation] = []
    # by container, once decided: the preferred NUMA nodes; None for any
    affinities: dict[str, frozenset[int] | None] = {}
    # False if a plugin's preferred devices for one container have left no aligned devices for another
    use_preferred: bool = True
    # by container and resource: the devices that a rehearsal chose
    rehearsed: dict[tuple[str, str], tuple[str, ...]] = {}
    # the request to be met next; None when all are met
    request: DeviceRequest | None = None
    # the number of requests that are met
    _met: int = 0
    # by resource, until the current event ends or devices are reserved
    _free: dict[str, Free] = {}
    _reserved: dict[str, set[str]] = {}
    _reusable: dict[str, set[str]] = {}
    assignments: Assignments = NOT_ASSIGNED

    def __post_init__(self) -> None:
        if self.pod.assigned_parts:
            self.assignments = Assignments(self.pod)
        self.request = self.requests[0] if self.requests else None

    def pending(self, request: DeviceRequest, reason: str, message: str) -> PendingAllocation:
        return PendingAllocation(self.pod.uid, request.container, request.resource_name, reason, message)

    def short(self, request: DeviceRequest, missing: int) -> PendingAllocation:
        """Pending because the resource lacks `missing` devices now."""
        name, resource = request.resource_name, self.book.resources[request.resource_name]
        if resource.presence.lost_to is not None:
            message = f"another resource name has the place of {name} on this node, which has too many: delete the pod"
            why = Reason.PLACE_TAKEN, message
        elif resource.presence.is_not_configured:
            why = Reason.NOT_CONFIGURED, f"{name} is not configured on this node any more"
        elif resource.presence.state is not EndpointState.RUNNING:
            does_not = "does not respond" if resource.presence.is_silent else "is not connected"
            why = Reason.ENDPOINT_STOPPED, f"the device plugin of {name} {does_not}"
        elif not resource.use.are_cordons_synced:
            why = Reason.CORDONS_NOT_SYNCED, f"the cordons of {name} on this node are not synced yet"
        elif resource.use.possible_holders:
            message = f"the checkpoint was lost, and the NodeDevice of {name} omitted allocations: this pod or another may hold any"
            why = (
                Reason.ALLOCATIONS_OMITTED,
                f"{message} device; delete the pods of this node that wait for this reason",
            )
        elif not resource.is_live or resource.presence.awaits_others:
            why = Reason.DEVICE_LIST_PENDING, f"the device plugin of {name} has not listed its devices yet"
        elif doubt := availability.doubt(resource):
            why = Reason.DEVICE_UNCONFIRMED, f"{missing} of {name} needed: {doubt}"
        else:
            # The number of free devices changes while the pod is pending, and the status shows it next to this message.
            why = Reason.NOT_ENOUGH_DEVICES, f"{missing} of {name} needed, but fewer are available"
        return self.pending(request, *why)

    def shortage(self) -> PendingAllocation | None:
        """The first request that cannot be met now; None if all can. Counts devices, and plans linked parts; chooses none."""
        misfits: dict[str, PendingAllocation | None] = {}
        held_by_init: dict[str, set[str]] = {}
        for index, request in enumerate(self.requests):
            name = request.resource_name
            resource, mine = self.book.resources[name], held_by_init.setdefault(name, set())
            held = self.book.of(self.pod.uid, request.container, name)
            if held is not None:
                _update_reusable(mine, request, held.device_ids)
                continue
            if name not in misfits:
                # an init container's device that has become unhealthy is not used again
                usable = [i for i in sorted(mine) if availability.is_usable(resource, i)]
                misfits[name] = self.misfit(resource, usable, index)
            misfit = misfits[name]
            if misfit is not None and misfit.container == request.container:
                return misfit
        return None

    def select(self, resource: Resource, *, is_strict: bool = False) -> Selection | None:
        """Choose devices of enough free ones; None if the rules for parts cannot be met. is_strict: only near parts."""
        request, rules = self.requests[self._met], resource.listed.part_rules
        affinity = self.affinities.get(request.container)
        found = self.free(resource)
        reusable, free = self.reusable(resource), found.ids
        rehearsed = self.rehearsed.get((request.container, resource.name))
        if rehearsed and {*reusable, *free}.issuperset(rehearsed):
            return Selection(request.count, rehearsed, ())
        if rules is None:
            return select(resource.devices, request.count, reusable, free, affinity, found.at_nodes)
        parents = self._parents(resource, reusable, free)
        if rules.placement is Placement.ANY:
            free = parents.in_order(max(request.count - len(reusable), 0))
            return select(resource.devices, request.count, reusable, free, affinity)
        has_nodes = bool(resource.listed.at_nodes)
        unmet = self._unmet(resource.name, self._met)
        needs = _needs(unmet)
        needs[0] = needs[0]._replace(near=affinity if has_nodes else None, is_strict=is_strict)
        plan = self.assignments.plan(parents.planner, needs, unmet)
        return None if isinstance(plan, Misfit) else Selection(request.count, parents.device_ids(plan[0]), ())

    def misfit(self, resource: Resource, reusable: Sequence[str], start: int) -> PendingAllocation | None:
        """The first of the requests from `start` that cannot be met, if any. reusable: devices of the pod's init containers."""
        name, unmet = resource.name, self._unmet(resource.name, start)
        rules = resource.listed.part_rules
        if not resource.is_ready:
            return self.short(unmet[0], unmet[0].count)
        if rules is None or not are_linked(resource.listed):
            room = availability.free_count(resource) + len(reusable)
            if sum(request.count for request in unmet) <= room:
                return None
            index = first_short(_needs(unmet), room)
            return None if index is None else self.short(unmet[index], unmet[index].count)
        needs = _needs(unmet)
        planner = self._parents(resource, reusable, self.free(resource).ids).planner
        plan = self.assignments.plan(planner, needs, unmet)
        if not isinstance(plan, Misfit):
            return None
        request, message = unmet[plan.index], planner.problem(name, needs, plan)
        if plan.excess:
            return structs.replace(self.pending(request, Reason.NO_DEVICE_FITS, message), is_final=True)
        if problem(name, rules, needs, {parent: len(ids) for parent, ids in resource.listed.by_parent.items()}):
            message += "; the node has too few even when all are free"
        if doubt := availability.doubt(resource):
            return self.pending(request, Reason.DEVICE_UNCONFIRMED, f"{message}; {doubt}")
        return self.pending(request, Reason.NO_DEVICE_FITS, message)

    def _parents(self, resource: Resource, reusable: Iterable[str], free: Iterable[str]) -> Parents:
        held = (a.device_ids for a in self.book.of_pod(self.pod.uid) if a.resource_name == resource.name)
        mine = {*chain.from_iterable(held), *self._reserved.get(resource.name, ())}
        return Parents(resource.listed, free, reusable, map(resource.use.parent_of, mine))

    def _unmet(self, resource_name: str, start: int) -> list[DeviceRequest]:
        """Requests for this resource without enough devices, from the current one on."""
        later = (request for request in self.requests[start:] if request.resource_name == resource_name)
        return [request for request in later if self.book.of(self.pod.uid, request.container, resource_name) is None]

    def skip_met(self) -> Allocation | None:
        """Advance past requests that are met already. Returns the first allocation of another count than requested, if any."""
        while (request := self.request) is not None:
            held = self.book.of(self.pod.uid, request.container, request.resource_name)
            if held is None or len(held.device_ids) != request.count:
                return held
            self.advance(request, held.device_ids)
        return None

    def free(self, resource: Resource) -> Free:
        """The free devices, read once per event."""
        found = self._free.get(resource.name)
        if found is None:
            ids = availability.free(resource)
            at_nodes = crowds(resource.devices, ids) if resource.listed.at_nodes else {}
            found = self._free[resource.name] = Free(ids, at_nodes)
        return found

    def look_again(self) -> None:
        """A later event: other pods may have taken some of the free devices since."""
        self._free.clear()

    def reusable(self, resource: Resource) -> tuple[str, ...]:
        """Devices of earlier init containers that the current request may take, sorted."""
        mine = self._reusable.get(resource.name)
        return tuple(i for i in sorted(mine) if availability.is_usable(resource, i)) if mine else ()

    def reserve(self, resource: Resource, device_ids: Iterable[str]) -> None:
        """Choose these devices for the current request, and reserve the ones that the pod does not hold yet."""
        self.chosen = tuple(sorted(device_ids))
        new = set(self.chosen).difference(self._reusable.get(resource.name, ()))
        self._reserved.setdefault(resource.name, set()).update(new)
        resource.use.reserved.update(dict.fromkeys(new, self.pod.uid))
        self._free.pop(resource.name, None)

    def made(self, request: DeviceRequest, response: AllocateResponse) -> Allocation:
        """Record the plugin's response: the chosen devices for the current request."""
        container, name = request.container, request.resource_name
        resource = self.book.resources[name]
        ids_by_numa = by_numa(self.chosen, resource.numa_nodes(self.chosen) if resource.listed.at_nodes else {})
        files = recorded_files(resource, self.chosen, response)
        made = response.octets, response.edits, response.received_at, files, resource.delivery
        return Allocation(self.pod.uid, container, name, ids_by_numa, *made)

    def complete(self, request: DeviceRequest, made: Allocation) -> None:
        self.allocated.append(made)
        self.ticket = None
        self.advance(request, self.chosen)

    def advance(self, request: DeviceRequest, device_ids: tuple[str, ...]) -> None:
        _update_reusable(self._reusable.setdefault(request.resource_name, set()), request, device_ids)
        self._met, self.chosen = self._met + 1, ()
        self.request = self.requests[self._met] if self._met < len(self.requests) else None

    def has_lost_device(self, request: DeviceRequest) -> bool:
        """Whether a device that was chosen so far, allocated or for the current request, has become unusable, or has other files
        than at its call.
        """
        resources = self.book.resources
        chosen = [(done.resource_name, done.device_ids) for done in self.allocated]
        chosen.append((request.resource_name, self.chosen))
        if not all(availability.are_usable(resources[name], device_ids) for name, device_ids in chosen):
            return True
        if self.called_with != listed_names(resources[request.resource_name], self.chosen):
            return True
        built_in = (done for done in self.allocated if resources[done.resource_name].presence.is_built_in)
        return any(is_outdated(done, resources[done.resource_name]) for done in built_in)

    def release(self) -> frozenset[str]:
        """Release every device that this transaction reserved. Returns their resource names."""
        for name, device_ids in self._reserved.items():
            reserved = self.book.resources[name].use.reserved
            if device_ids.issuperset(reserved):
                # as mostly, and of very many at once
                reserved.clear()
                continue
            for device_id in device_ids:
                reserved.pop(device_id, None)
        return frozenset([name for name, device_ids in self._reserved.items() if device_ids])


def _needs(requests: Iterable[DeviceRequest]) -> list[Need]:
    return [Need(request.count, request.kind is ContainerKind.INIT, request.container) for request in requests]


def _update_reusable(reusable: set[str], request: DeviceRequest, device_ids: Iterable[str]) -> None:
    """Devices of init containers that later containers may reuse, except devices that another container keeps."""
    if request.kind is ContainerKind.INIT:
        reusable.update(device_ids)
    elif reusable:
        reusable.difference_update(device_ids)
