"""The allocations of all pods: which are in progress, which are pending and why, and which are retried when something changes.

One transaction itself is in pod_allocation. Here is what it shares with the others: the order in which pods are served, the
plugins' responses by ticket, and the retry of pending pods with what another pod released.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import structs
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce
from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation, PodAllocation
from nodedevice_agent.devicemanager.allocation.rehearsal import rehearse, too_much
from nodedevice_agent.devicemanager.allocation.retries import Retries
from nodedevice_agent.devicemanager.allocation.topology import UNALIGNED, Topology, align
from nodedevice_agent.devicemanager.effects import (
    CallAllocate,
    CallPreferred,
    Effect,
    Publish,
    SaveCheckpoint,
    UnknownResource,
)
from nodedevice_agent.devicemanager.pods import DeviceRequest, Pod
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.resource import Resource

# Devices of the lists that one event may look at, where it concerns many pods; each pod counts as some. The other pods have their
# turn at once, in events of their own: an event is some ten milliseconds, and a node may have any number of pods that wait.
_MOST_LOOKS = 65536
_LOOKS_A_POD = 256


class Allocator:
    """is_held_back: nothing is allocated, because the existing allocations are not known yet."""

    def __init__(
        self,
        book: AllocationBook,
        topology: Topology,
        tickets: Iterator[int],
        pre_starts: PreStartCalls,
        once: AllocateOnce,
        *,
        is_held_back: bool,
    ) -> None:
        self.is_held_back = is_held_back
        self._book = book
        self._topology = topology
        self._tickets = tickets
        self._pre_starts = pre_starts
        self._once = once
        # pods that lack devices of some resource, in progress or not
        self.unallocated: dict[str, Pod] = {}
        # why a pod has no devices yet, unless a plugin call for it is in flight; failed calls also while they are retried
        self.pending: Retries[str] = Retries()
        # a plugin call is in flight
        self.in_progress: dict[str, PodAllocation] = {}
        self._by_ticket: dict[int, PodAllocation] = {}
        # how many devices an event about many pods has looked at; None during any other
        self._looks: int | None = None
        # pods that had no turn in it: by UID, since when; and, while it goes on, resources that have changed
        self._postponed: dict[str, float] = {}
        self._changed: set[str] | None = None
        # by pod UID: the resource names for which UnknownResource was returned
        self._reported_unknown: dict[str, set[str]] = {}

    # -- events -------------------------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod that requests extended resources is new or has changed. A transaction in progress continues as it began."""
        if pod.uid in self.in_progress:
            return []
        self.unallocated[pod.uid] = pod
        return self._begin(pod, now) if self._looks is None else self._begin_in_turn(pod, now)

    def begin_many(self) -> None:
        """An event about many pods begins."""
        self._looks, self._changed = 0, set()

    def end_many(self, now: float) -> list[Effect]:
        """It has ended: who waits for what it has changed is retried once."""
        changed, self._changed = self._changed or (), None
        effects = self.reconsider(changed, now)
        self._looks = None
        return effects

    @property
    def next_turn(self) -> float | None:
        """Since when a pod waits for its turn, which is due."""
        return next(iter(self._postponed.values()), None)

    def pod_terminating(self, pod_uid: str) -> list[Effect]:
        """The pod gets no more devices. The response of a call in flight is still processed."""
        self.unallocated.pop(pod_uid, None)
        pending = self.pending.pop(pod_uid, None)
        return [Publish(pending.resource_name)] if pending is not None else []

    def pod_ended(self, pod_uid: str, now: float) -> list[Effect]:
        """The pod has finished or is no longer in the API: its transaction in progress is rolled back."""
        effects = self.pod_terminating(pod_uid)
        self._reported_unknown.pop(pod_uid, None)
        current = self.in_progress.get(pod_uid)
        if current is not None:
            effects += self.reconsider(self._roll_back(current), now)
        return effects

    def reconsider(self, resource_names: Iterable[str], now: float, but: str = "") -> list[Effect]:
        """Something about these resources changed: retry every pod that lacks one of them, first come first served.

        but: the UID of the pod whose own failure caused the change.
        """
        changed = frozenset(resource_names)
        if self._changed is not None:
            self._changed |= changed
            return []
        effects: list[Effect] = []
        is_whole, self._looks = self._looks is None, self._looks or 0
        for uid, pod in list(self.unallocated.items()):
            pending = self.pending.get(uid)
            if uid == but or uid in self.in_progress or (pending is not None and not pending.is_due(now)):
                continue
            lacking = {request.resource_name for request in pod.device_requests}
            if not changed.isdisjoint(lacking if pending is None else {pending.resource_name, *pending.others}):
                effects += self._begin_in_turn(pod, now)
        if is_whole:
            self._looks = None
        return effects

    def retry(self, now: float) -> list[Effect]:
        """Retry every pod whose backoff after a plugin's error has passed, and those that had no turn yet."""
        postponed, self._postponed = self._postponed, {}
        due = [uid for uid, pending in self.pending.items() if pending.retry_at is not None and pending.is_due(now)]
        effects: list[Effect] = []
        for uid in dict.fromkeys((*postponed, *due)):
            if uid in self.unallocated and uid not in self.in_progress:
                effects += self._begin_in_turn(self.unallocated[uid], now)
        self._looks = None
        return effects

    def _begin_in_turn(self, pod: Pod, now: float) -> list[Effect]:
        """In an event about many pods."""
        looks = self._looks or 0
        if looks >= _MOST_LOOKS:
            self._postponed.setdefault(pod.uid, now)
            return []
        names = {request.resource_name for request in pod.device_requests} & self._book.resources.keys()
        self._looks = looks + _LOOKS_A_POD + sum(len(self._book.resources[name].devices) for name in names)
        return self._begin(pod, now)

    # -- responses of plugins -----------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> list[Effect]:
        """GetPreferredAllocation's response, empty if the call failed. The devices among them that are free are taken first."""
        current = self._by_ticket.pop(ticket, None)
        if current is None or current.request is None:
            return []
        current.ticket = None
        return self._choose(current, current.request, now, preferred=tuple(device_ids))

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> list[Effect]:
        """Allocate succeeded."""
        current = self._by_ticket.pop(ticket, None)
        if current is None or current.request is None:
            return []
        if current.has_lost_device(current.request):
            # checked against the devices listed at the response: one may have gone since the call
            return self._restart(current, now, use_preferred=current.use_preferred)
        current.complete(current.request, response)
        return self._advance(current, now)

    def allocate_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """Allocate failed, timed out or returned an invalid response: release the pod's reservations, retry after a backoff."""
        current = self._by_ticket.pop(ticket, None)
        if current is None or current.request is None:
            return []
        return self._retry_later(current, current.pending(current.request, Reason.ALLOCATE_FAILED, message), now)

    def awaited(self, ticket: int) -> tuple[str, tuple[str, ...]]:
        """The resource and the device IDs of this call; "" where its response does not matter any more."""
        current = self._by_ticket.get(ticket)
        if current is None or current.request is None:
            return "", ()
        return current.request.resource_name, current.chosen

    def octets(self) -> Counter[str]:
        """Of the responses so far in transactions, by domain of the resources' names."""
        found: Counter[str] = Counter()
        for current in self.in_progress.values():
            for allocation in current.allocated:
                found[domain_of(allocation.resource_name)] += allocation.octets
        return found

    def is_awaited(self, ticket: int) -> bool:
        """Whether the response of that call still matters."""
        return ticket in self._by_ticket

    # -- one transaction ----------------------------------------------------------------------------------------------

    def _begin(self, pod: Pod, now: float, *, use_preferred: bool = True) -> list[Effect]:
        """Start the pod's transaction for the resources that are known here."""
        requests, effects = self._known_requests(pod)
        if not requests or self.is_held_back:
            return effects
        refusal = self._once.refuse(pod.uid, requests)
        if refusal is not None:
            return effects + self._set_pending(refusal)
        earlier = self.pending.get(pod.uid)
        if earlier is not None and earlier.retry_at is not None:
            # This is the retry; the number of attempts is kept.
            self.pending[pod.uid] = structs.replace(earlier, retry_at=None)
        current = PodAllocation(pod, requests, self._book, use_preferred=use_preferred)
        # Checked before any plugin is called, so that two pods that want the same pair of devices never chase each other.
        shortage = current.shortage()
        if shortage is not None:
            return effects + self._set_pending(shortage)
        if problem := too_much(self._topology, current):
            return effects + self._set_pending(_never_aligned(current, problem))
        unaligned = rehearse(self._topology, current)
        if unaligned is not None:
            return effects + self._set_pending(_unaligned(current, unaligned))
        self.in_progress[pod.uid] = current
        if earlier is not None and earlier.attempts == 0:
            # What the pod waited for is available now, and the plugin call may take its time.
            del self.pending[pod.uid]
            effects.append(Publish(earlier.resource_name))
        return effects + self._advance(current, now, is_later=False)

    def _known_requests(self, pod: Pod) -> tuple[list[DeviceRequest], list[Effect]]:
        """The pod's requests for known resources; each unknown resource is reported once for the pod."""
        requests: list[DeviceRequest] = []
        effects: list[Effect] = []
        for request in pod.device_requests:
            name = request.resource_name
            if name in self._book.resources:
                requests.append(request)
            elif name not in (reported := self._reported_unknown.setdefault(pod.uid, set())):
                reported.add(name)
                effects.append(UnknownResource(f"{pod.namespace}/{pod.name}", request.container, name))
        return requests, effects

    def _advance(self, current: PodAllocation, now: float, *, is_later: bool = True) -> list[Effect]:
        changed = current.skip_met()
        request = current.request
        if request is None:
            return self._commit(current, now)
        if changed is not None:
            held = len(changed.device_ids)
            message = f"container {request.container} changed its request from {held} to {request.count}"
            return self._give_up(current, current.pending(request, Reason.CHANGED_REQUEST, message), now)
        return self._choose(current, request, now, is_later=is_later)

    def _choose(
        self,
        current: PodAllocation,
        request: DeviceRequest,
        now: float,
        preferred: tuple[str, ...] | None = None,
        *,
        is_later: bool = True,
    ) -> list[Effect]:
        """Choose devices for one request: reusable ones first, then near ones in the plugin's order; or make it pending.

        preferred: GetPreferredAllocation's response; None where the plugin was not asked yet. is_later: this is another event than
        the one with which the transaction began.
        """
        resource = self._book.resources[request.resource_name]
        if is_later:
            current.look_again()
        reusable, free = current.reusable(resource), current.free(resource).ids
        missing = max(request.count - len(reusable), 0)
        if missing > len(free) or not resource.is_ready:
            return self._give_up(current, current.short(request, missing), now)
        if not align(self._topology, current):
            return self._overtaken(current, _unaligned(current, request), now)
        selection = current.select(resource, is_strict=self._topology.is_strict)
        if selection is None:
            misfit = current.misfit(resource, reusable, current.requests.index(request))
            return self._overtaken(current, misfit or _unaligned(current, request), now)
        asks = resource.options.get_preferred_allocation_available and current.use_preferred
        if selection.missing > 0 and preferred is None and asks:
            call = self._new_call(current, resource)
            return [CallPreferred(*call, selection.candidates(), selection.taken, selection.count)]
        current.reserve(resource, selection.completed(preferred or ()))
        call, uid = self._new_call(current, resource), current.pod.uid
        named = resource.plugin_ids(current.chosen)
        if not self._once.applies_to(resource.name):
            return [CallAllocate(*call, named, uid, request.container)]
        self._once.record((uid, request.container, resource.name))
        recorded = CallAllocate(*call, named, uid, request.container, recorded_for=uid)
        return [SaveCheckpoint(durable=True, pod_uid=uid), recorded]

    def _new_call(self, current: PodAllocation, resource: Resource) -> tuple[int, str, int]:
        """Ticket, resource name and endpoint of a new call."""
        assert resource.endpoint is not None
        current.ticket = next(self._tickets)
        self._by_ticket[current.ticket] = current
        return current.ticket, resource.name, resource.endpoint

    def _overtaken(self, current: PodAllocation, failed: PendingAllocation, now: float) -> list[Effect]:
        """The rehearsal succeeded, but then preferred devices or other pods took what it had for a later container."""
        if current.use_preferred:
            # Choose as in the rehearsal, of what is free without this pod. If that is no longer possible, the new rehearsal fails.
            return self._restart(current, now, use_preferred=False)
        # not at once a second time: two such pods could chase each other
        return self._retry_later(current, failed, now)

    def _commit(self, current: PodAllocation, now: float) -> list[Effect]:
        pod, allocated = current.pod, current.allocated
        for allocation in allocated:
            self._book.add(allocation)
        self._once.committed(allocated)
        self._roll_back(current)
        unmet = [r for r in pod.device_requests if self._book.of(pod.uid, r.container, r.resource_name) is None]
        if not unmet:
            self.unallocated.pop(pod.uid, None)
        touched = {allocation.resource_name for allocation in allocated}
        was_pending = self.pending.pop(pod.uid, None)
        if was_pending is not None:
            touched.add(was_pending.resource_name)
        effects: list[Effect] = [SaveCheckpoint(durable=True, pod_uid=pod.uid)] if allocated else []
        effects += [Publish(name) for name in sorted(touched)]
        effects += current.assignments.report(allocated, self._book.resources)
        calls = [a.key for a in allocated if self._book.resources[a.resource_name].options.pre_start_required]
        if calls:
            self._pre_starts.require(calls)
            effects += self._pre_starts.due(now)
        # The pod may request a resource that was registered during its transaction.
        continues = pod.uid in self.unallocated and any(r.resource_name in self._book.resources for r in unmet)
        return effects + self._begin(pod, now) if continues else effects

    def _roll_back(self, current: PodAllocation) -> frozenset[str]:
        """End a transaction: release its reservations (committed devices are held by then). Returns their resource names."""
        self.in_progress.pop(current.pod.uid, None)
        if current.ticket is not None:
            self._by_ticket.pop(current.ticket, None)
        return current.release()

    def _restart(self, current: PodAllocation, now: float, *, use_preferred: bool) -> list[Effect]:
        """The transaction lost devices it relied on: begin again, unless its pod is terminating meanwhile."""
        freed = self._roll_back(current)
        uid = current.pod.uid
        pod = self.unallocated.get(uid)
        effects = self._begin(pod, now, use_preferred=use_preferred) if pod is not None else []
        return effects + self.reconsider(freed, now, but=uid)

    def _retry_later(self, current: PodAllocation, failed: PendingAllocation, now: float) -> list[Effect]:
        return self._give_up(current, failed.retried_after(self.pending.get(current.pod.uid), now), now)

    def _give_up(self, current: PodAllocation, failed: PendingAllocation, now: float) -> list[Effect]:
        """The transaction cannot continue: its pod becomes pending, and others that need what it had reserved are retried."""
        freed = self._roll_back(current)
        failed = self._once.refuse(current.pod.uid, current.requests, failed.message) or failed
        # a pod that is terminating meanwhile is not pending
        effects = self._set_pending(failed) if failed.pod_uid in self.unallocated else []
        return effects + self.reconsider(freed, now, but=failed.pod_uid)

    def _set_pending(self, pending: PendingAllocation) -> list[Effect]:
        before = self.pending.get(pending.pod_uid)
        self.pending[pending.pod_uid] = pending
        names = {pending.resource_name} | ({before.resource_name} if before else set())
        return [] if before == pending else [Publish(name) for name in sorted(names)]


def _never_aligned(current: PodAllocation, problem: str) -> PendingAllocation:
    failed = current.pending(current.requests[0], Reason.TOPOLOGY_AFFINITY, f"{UNALIGNED}: {problem}")
    return structs.replace(failed, is_final=True)


def _unaligned(current: PodAllocation, request: DeviceRequest) -> PendingAllocation:
    """Pending until any of the pod's resources changes: near devices of one are useless without those of another."""
    names = frozenset(r.resource_name for r in current.requests)
    doubts = [doubt for name in sorted(names) if (doubt := availability.doubt(current.book.resources[name]))]
    message = "; ".join((f"container {request.container}: {UNALIGNED}", *doubts))
    unaligned = current.pending(request, Reason.DEVICE_UNCONFIRMED if doubts else Reason.TOPOLOGY_AFFINITY, message)
    return structs.replace(unaligned, others=names)
