"""The allocations of all pods: those in progress, those pending with their reasons, and the retries after a change.

The module pod_allocation contains a single transaction. This module contains what transactions share: the order in which pods are
served, the plugins' responses by ticket, and the retry of pending pods when another pod releases devices.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs
from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation, PodAllocation
from nodedevice_agent.devicemanager.allocation.rehearsal import rehearse, too_much
from nodedevice_agent.devicemanager.allocation.retries import Retries
from nodedevice_agent.devicemanager.allocation.stored_responses import listed_names
from nodedevice_agent.devicemanager.allocation.topology import UNALIGNED, Topology, align
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, UnknownResource
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import DeviceRequest, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.resource import Resource

# Devices that one event may read if it concerns many pods; each pod counts as some, as does each set of NUMA nodes with devices if
# pods are aligned. The other pods follow at once, in separate events: an event takes some ten milliseconds, and a node may have any
# number of pending pods.
_MOST_LOOKS = 65536
_LOOKS_A_POD, _LOOKS_A_GROUP = 256, 32


class Allocator(Struct, eq=False):
    """pending: why a pod has no devices yet, unless a plugin call for it is in flight; failed calls also while they are retried.
    is_held_back: nothing is allocated, because the existing allocations are not known yet.
    """

    _book: AllocationBook
    _marks: Marks
    _deadlines: Deadlines
    _topology: Topology
    _tickets: Iterator[int]
    _pre_starts: PreStartCalls
    _once: AllocateOnce
    pending: Retries[str]
    is_held_back: bool
    # pods that lack devices of some resource, in progress or not; and pods that the next settle() begins
    unallocated: dict[str, Pod] = {}
    due: dict[str, None] = {}
    # a plugin call is in flight
    in_progress: dict[str, PodAllocation] = {}
    _by_ticket: dict[int, PodAllocation] = {}
    # pods that had no turn in a settle(): they are begun at the next tick
    _postponed: dict[str, None] = {}
    # by pod UID: the resource names that were reported as unknown
    _reported_unknown: dict[str, set[str]] = {}

    def pod_seen(self, pod: Pod) -> None:
        """A pod that requests extended resources is new or has changed. A transaction in progress continues as it began."""
        if pod.uid not in self.in_progress:
            self.unallocated[pod.uid] = pod
            self.due[pod.uid] = None

    def pod_terminating(self, pod_uid: str) -> None:
        """The pod gets no more devices. The response of a call in flight is still processed."""
        self.unallocated.pop(pod_uid, None)
        pending = self.pending.remove(pod_uid)
        if pending is not None:
            self._marks.publish(pending.resource_name)

    def pod_ended(self, pod_uid: str) -> None:
        """Roll back the transaction of a pod that has finished or was deleted from the API."""
        self.pod_terminating(pod_uid)
        self._reported_unknown.pop(pod_uid, None)
        current = self.in_progress.get(pod_uid)
        if current is not None:
            self._marks.freed(self._roll_back(current))

    def tick(self, now: float) -> None:
        """Make pods due whose backoff after a plugin error has passed, and pods that had no turn yet."""
        self.due |= self._postponed
        self._postponed.clear()
        self._deadlines.set("turns", "", None)
        for uid, pending in self.pending.items():
            if pending.retry_at is not None and pending.is_due(now):
                self.due[uid] = None

    def settle(self, now: float) -> None:
        """Begin the due pods and all pods that may use freed devices, first come, first served."""
        due, freed = self.due, self._marks.awaited
        self.due, self._marks.awaited = {}, {}
        looks = 0
        for uid in list(self.unallocated) if freed else due:
            pod = self.unallocated.get(uid)
            if pod is None or uid in self.in_progress or not (uid in due or self._may_get(pod, freed, now)):
                continue
            if looks >= _MOST_LOOKS:
                self._postponed[uid] = None
                self._deadlines.set("turns", "", now)
                continue
            names = {request.resource_name for request in pod.device_requests} & self._book.resources.keys()
            looks += _LOOKS_A_POD + sum(map(self._looks, names))
            self._begin(pod, now)

    def _looks(self, resource_name: str) -> int:
        listed = self._book.resources[resource_name].listed
        return len(listed.devices) + (_LOOKS_A_GROUP * len(listed.at_nodes) if self._topology.is_aligning else 0)

    def _may_get(self, pod: Pod, freed: Mapping[str, str], now: float) -> bool:
        """Whether the pod waits for one of these, and not for a backoff."""
        pending = self.pending.get(pod.uid)
        if pending is None:
            lacking: Iterable[str] = {request.resource_name for request in pod.device_requests}
        elif pending.is_due(now):
            lacking = (pending.resource_name, *pending.others)
        else:
            return False
        return any(name in freed and freed[name] != pod.uid for name in lacking)

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> None:
        current = self._by_ticket.pop(ticket, None)
        if current is None or current.request is None:
            return
        current.ticket = None
        current.look_again()
        self._choose(current, current.request, now, preferred=tuple(device_ids))

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> None:
        current = self._by_ticket.pop(ticket, None)
        if current is None or (request := current.request) is None:
            return
        if current.has_lost_device(request):
            # checked against the devices listed at the response: one may have gone, or have other files, since the call
            self._restart(current, now, use_preferred=current.use_preferred)
            return
        made = current.made(request, response)
        if problem := self._book.no_room(made, self.uncommitted()):
            self._retry_later(current, current.pending(request, Reason.ALLOCATE_FAILED, problem), now)
            return
        current.complete(request, made)
        current.look_again()
        self._advance(current, now)

    def allocate_failed(self, ticket: int, message: str, now: float) -> None:
        current = self._by_ticket.pop(ticket, None)
        if current is not None and current.request is not None:
            self._retry_later(current, current.pending(current.request, Reason.ALLOCATE_FAILED, message), now)

    def uncommitted(self) -> Iterator[Allocation]:
        for current in self.in_progress.values():
            yield from current.allocated

    def is_awaited(self, ticket: int) -> bool:
        """Whether the response of that call still matters."""
        return ticket in self._by_ticket

    def _begin(self, pod: Pod, now: float, *, use_preferred: bool = True) -> None:
        requests = self._known_requests(pod)
        if not requests or self.is_held_back:
            return
        refusal = self._once.refuse(pod.uid, requests)
        if refusal is not None:
            self._set_pending(refusal)
            return
        earlier = self.pending.get(pod.uid)
        if earlier is not None and earlier.retry_at is not None:
            # This is the retry; the number of attempts is kept.
            self.pending[pod.uid] = structs.replace(earlier, retry_at=None)
        current = PodAllocation(pod, requests, self._book, use_preferred=use_preferred)
        if failed := self._never_now(current):
            self._set_pending(failed)
            return
        self.in_progress[pod.uid] = current
        if earlier is not None and earlier.attempts == 0:
            # What the pod waited for is available now, and the plugin call may take its time.
            self.pending.remove(pod.uid)
            self._marks.publish(earlier.resource_name)
        self._advance(current, now)

    def _never_now(self, current: PodAllocation) -> PendingAllocation | None:
        """Why not all requests can be met now: before any call, so that two pods that want the same pair never chase each other."""
        shortage = current.shortage()
        if shortage is not None or not self._topology.is_aligning:
            return shortage
        if problem := too_much(self._topology, current):
            return _never_aligned(current, problem)
        unaligned = rehearse(self._topology, current)
        return None if unaligned is None else _unaligned(current, unaligned)

    def _known_requests(self, pod: Pod) -> list[DeviceRequest]:
        """The pod's requests for known resources; each unknown resource is reported once for the pod."""
        requests: list[DeviceRequest] = []
        for request in pod.device_requests:
            name = request.resource_name
            if name in self._book.resources:
                requests.append(request)
            elif name not in (reported := self._reported_unknown.setdefault(pod.uid, set())):
                reported.add(name)
                self._marks.report(UnknownResource(f"{pod.namespace}/{pod.name}", request.container, name))
        return requests

    def _advance(self, current: PodAllocation, now: float) -> None:
        changed = current.skip_met()
        request = current.request
        if request is None:
            self._commit(current, now)
        elif changed is not None:
            held = len(changed.device_ids)
            message = f"container {request.container} changed its request from {held} to {request.count}"
            failed = current.pending(request, Reason.CHANGED_REQUEST, message)
            if held < request.count and self._book.resources[request.resource_name].use.possible_holders:
                # the container may hold the others, which a NodeDevice omitted
                failed = current.short(request, request.count - held)
            self._give_up(current, failed)
        else:
            self._choose(current, request, now)

    def _choose(
        self, current: PodAllocation, request: DeviceRequest, now: float, preferred: tuple[str, ...] | None = None
    ) -> None:
        """Choose reusable devices, then near ones in the plugin's order; or the pod is pending. preferred: None before the call."""
        resource = self._book.resources[request.resource_name]
        reusable, free = current.reusable(resource), current.free(resource).ids
        missing = max(request.count - len(reusable), 0)
        if missing > len(free) or not resource.is_ready:
            self._give_up(current, current.short(request, missing))
            return
        if not align(self._topology, current):
            self._overtaken(current, _unaligned(current, request), now)
            return
        selection = current.select(resource, is_strict=self._topology.is_strict)
        if selection is None:
            misfit = current.misfit(resource, reusable, current.requests.index(request))
            self._overtaken(current, misfit or _unaligned(current, request), now)
            return
        asks = resource.newest.options.get_preferred_allocation_available and current.use_preferred
        if selection.missing > 0 and preferred is None and asks:
            call = self._new_call(current, resource)
            self._marks.call(CallPreferred(*call, selection.candidates(), selection.taken, selection.count))
            return
        current.reserve(resource, selection.completed(preferred or ()))
        current.called_with = listed_names(resource, current.chosen)
        call, uid = self._new_call(current, resource), current.pod.uid
        named, recorded_for = resource.plugin_ids(current.chosen), ""
        if self._once.applies_to(resource.name):
            self._once.record((uid, request.container, resource.name))
            self._marks.save_durably(uid)
            recorded_for = uid
        self._marks.call(CallAllocate(*call, named, uid, request.container, recorded_for))

    def _new_call(self, current: PodAllocation, resource: Resource) -> tuple[int, str, int]:
        """Ticket, resource name and endpoint of a new call."""
        assert resource.newest.endpoint is not None
        current.ticket = next(self._tickets)
        self._by_ticket[current.ticket] = current
        return current.ticket, resource.name, resource.newest.endpoint

    def _overtaken(self, current: PodAllocation, failed: PendingAllocation, now: float) -> None:
        """Choose again after preferred devices or other pods took devices that a successful rehearsal used."""
        if current.use_preferred:
            # Choose as in the rehearsal, from the devices free without this pod. If that fails now, the new rehearsal fails.
            self._restart(current, now, use_preferred=False)
        else:
            # not at once a second time: two such pods could chase each other
            self._retry_later(current, failed, now)

    def _commit(self, current: PodAllocation, now: float) -> None:
        pod, allocated = current.pod, current.allocated
        for allocation in allocated:
            self._book.add(allocation)
        self._once.committed(allocated)
        self._roll_back(current)
        unmet = []
        if len(current.requests) < len(pod.device_requests):
            unmet = [r for r in pod.device_requests if self._book.of(pod.uid, r.container, r.resource_name) is None]
        if not unmet:
            self.unallocated.pop(pod.uid, None)
        was_pending = self.pending.remove(pod.uid)
        if was_pending is not None:
            self._marks.publish(was_pending.resource_name)
        if allocated:
            self._marks.save_durably(pod.uid)
            self._marks.held({allocation.resource_name for allocation in allocated})
            current.assignments.report(allocated, self._book.resources, self._marks)
        calls = [a.key for a in allocated if self._book.resources[a.resource_name].newest.options.pre_start_required]
        if calls:
            self._pre_starts.require(calls)
        if unmet and pod.uid in self.unallocated and any(r.resource_name in self._book.resources for r in unmet):
            # The pod may request a resource that was registered during its transaction.
            self._begin(pod, now)

    def _roll_back(self, current: PodAllocation) -> frozenset[str]:
        """End a transaction: release its reservations (committed devices are held by then). Returns their resource names."""
        self.in_progress.pop(current.pod.uid, None)
        if current.ticket is not None:
            self._by_ticket.pop(current.ticket, None)
        return current.release()

    def _restart(self, current: PodAllocation, now: float, *, use_preferred: bool) -> None:
        """The transaction lost devices it relied on: begin again, unless its pod is terminating meanwhile."""
        freed = self._roll_back(current)
        uid = current.pod.uid
        pod = self.unallocated.get(uid)
        if pod is not None:
            self._begin(pod, now, use_preferred=use_preferred)
        self._marks.freed(freed, but=uid)

    def _retry_later(self, current: PodAllocation, failed: PendingAllocation, now: float) -> None:
        self._give_up(current, failed.retried_after(self.pending.get(current.pod.uid), now))

    def _give_up(self, current: PodAllocation, failed: PendingAllocation) -> None:
        """Make the pod of a failed transaction pending, and retry the pods that need its reserved devices."""
        freed = self._roll_back(current)
        failed = self._once.refuse(current.pod.uid, current.requests, failed.message) or failed
        # a pod that is terminating meanwhile is not pending
        if failed.pod_uid in self.unallocated:
            self._set_pending(failed)
        self._marks.freed(freed, but=failed.pod_uid)

    def _set_pending(self, pending: PendingAllocation) -> None:
        before = self.pending.get(pending.pod_uid)
        self.pending[pending.pod_uid] = pending
        if before != pending:
            self._marks.publish_all({pending.resource_name, before.resource_name if before else pending.resource_name})


def _never_aligned(current: PodAllocation, problem: str) -> PendingAllocation:
    failed = current.pending(current.requests[0], Reason.TOPOLOGY_AFFINITY, f"{UNALIGNED}: {problem}")
    return structs.replace(failed, is_final=True)


def _unaligned(current: PodAllocation, request: DeviceRequest) -> PendingAllocation:
    """Pending until any of the pod's resources changes: near devices of one resource need near devices of the others."""
    names = frozenset(r.resource_name for r in current.requests)
    doubts = [doubt for name in sorted(names) if (doubt := availability.doubt(current.book.resources[name]))]
    message = "; ".join((f"container {request.container}: {UNALIGNED}", *doubts))
    unaligned = current.pending(request, Reason.DEVICE_UNCONFIRMED if doubts else Reason.TOPOLOGY_AFFINITY, message)
    return structs.replace(unaligned, others=names)
