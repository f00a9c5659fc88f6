"""The transactions of all pods: which are under way, which wait and why, and who is tried again when something changes.

One transaction itself is in admission; here is what it needs of the others: the order in which pods are served, the answers of
plugins by ticket, and that what one gives back is offered to whoever waits for it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation import topology_admission as alignment
from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.pending import Waiting, pause_seconds
from nodedevice_agent.devicemanager.allocation.pod_allocation import Admission
from nodedevice_agent.devicemanager.allocation.prestart import PreStarts
from nodedevice_agent.devicemanager.allocation.selection import Choice, choice
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.effects import (
    AskPreferred,
    CallAllocate,
    Effect,
    PodNotServed,
    Publish,
    SaveCheckpoint,
)
from nodedevice_agent.devicemanager.pods import Need, Pod
from nodedevice_agent.devicemanager.resource import EndpointState, Resource


class Admissions:
    """is_held_back: nothing is given out while it is not known who holds what."""

    def __init__(
        self,
        book: AllocationBook,
        resources: Mapping[str, Resource],
        topology: Topology,
        tickets: Iterator[int],
        pre_starts: PreStarts,
        *,
        is_held_back: bool,
    ) -> None:
        self.is_held_back = is_held_back
        self._book = book
        self._resources = resources
        self._topology = topology
        self._tickets = tickets
        self._pre_starts = pre_starts
        self._unmet: dict[str, Pod] = {}
        self._waiting: dict[str, Waiting] = {}
        self._admissions: dict[str, Admission] = {}
        self._by_ticket: dict[int, Admission] = {}
        # by pod UID, the resource names of which PodNotServed was returned
        self._said_unserved: dict[str, set[str]] = {}

    # -- what happens -------------------------------------------------------------------------------------------------

    def seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod that asks for extended resources, new or changed. One that is being admitted goes on as it began."""
        if pod.uid in self._admissions:
            return []
        self._unmet[pod.uid] = pod
        return self._begin(pod, now)

    def ending(self, pod_uid: str) -> list[Effect]:
        """The pod is ending: it gets nothing more. An answer that is on its way is still taken in."""
        self._unmet.pop(pod_uid, None)
        waiting = self._waiting.pop(pod_uid, None)
        return [Publish(waiting.resource_name)] if waiting is not None else []

    def ended(self, pod_uid: str, now: float) -> list[Effect]:
        """The pod is over or gone for the API: a transaction under way ends with it."""
        effects = self.ending(pod_uid)
        self._said_unserved.pop(pod_uid, None)
        admission = self._admissions.get(pod_uid)
        if admission is not None:
            effects += self.reconsider(self._roll_back(admission), now)
        return effects

    def reconsider(self, resource_names: Iterable[str], now: float, but: str = "") -> list[Effect]:
        """Something about these resources changed: whoever still lacks one of them is tried again, first come first.

        but: the uid of the pod whose own failing brought the change.
        """
        changed = frozenset(resource_names)
        effects: list[Effect] = []
        for uid, pod in list(self._unmet.items()):
            waiting = self._waiting.get(uid)
            if waiting is not None:
                # it lacks just this one, or pauses after a plugin's error
                is_due = waiting.is_helped_by(changed) and (waiting.retry_at is None or waiting.retry_at <= now)
            else:
                is_due = not changed.isdisjoint(need.resource_name for need in pod.needs())
            if uid == but or uid in self._admissions or not is_due:
                continue
            effects += self._begin(pod, now)
        return effects

    def retry(self, now: float) -> list[Effect]:
        """Whoever paused after a plugin's error and has paused long enough is tried again."""
        effects: list[Effect] = []
        for uid, waiting in list(self._waiting.items()):
            if waiting.retry_at is not None and waiting.retry_at <= now and uid in self._unmet:
                effects += self._begin(self._unmet[uid], now)
        return effects

    def next_deadline(self) -> float | None:
        return min((w.retry_at for w in self._waiting.values() if w.retry_at is not None), default=None)

    def waiting(self) -> Iterable[Waiting]:
        return self._waiting.values()

    def why(self, pod_uid: str) -> Waiting | None:
        return self._waiting.get(pod_uid)

    def under_way(self) -> Collection[str]:
        """UIDs of the pods whose plugins are being asked."""
        return self._admissions.keys()

    # -- answers of plugins ---------------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> list[Effect]:
        """GetPreferredAllocation's advice, empty where it failed. What is free in it is taken, the rest is chosen here."""
        admission = self._by_ticket.pop(ticket, None)
        if admission is None or admission.need is None:
            return []
        admission.ticket = None
        return self._choose(admission, admission.need, now, advice=tuple(device_ids))

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> list[Effect]:
        """Allocate was answered."""
        admission = self._by_ticket.pop(ticket, None)
        if admission is None or admission.need is None:
            return []
        if admission.has_lost(self._resources):
            # judged against what is listed when the answer comes: a device may have gone meanwhile
            return self._begin_anew(admission, now, heeds_advice=admission.heeds_advice)
        admission.answered(self._resources[admission.need.resource_name], response)
        return self._advance(admission, now)

    def allocate_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """Allocate failed, timed out or made no sense. The pod's reservations are dropped and it is tried again later."""
        admission = self._by_ticket.pop(ticket, None)
        if admission is None or admission.need is None:
            return []
        need = admission.need
        earlier = self._waiting.get(admission.pod.uid)
        attempts = (earlier.attempts if earlier else 0) + 1
        waiting = _until_changed(admission.pod, need, Reason.ALLOCATE_FAILED, message)
        return self._give_up(
            admission, replace(waiting, attempts=attempts, retry_at=now + pause_seconds(attempts)), now
        )

    # -- how it is done -------------------------------------------------------------------------------------------------

    def _begin(self, pod: Pod, now: float, *, heeds_advice: bool = True) -> list[Effect]:
        """Start the pod's transaction for the resources that are known here."""
        effects: list[Effect] = []
        needs = []
        for need in pod.needs():
            if need.resource_name in self._resources:
                needs.append(need)
            elif need.resource_name not in (said := self._said_unserved.setdefault(pod.uid, set())):
                said.add(need.resource_name)
                effects.append(PodNotServed(f"{pod.namespace}/{pod.name}", need.container, need.resource_name))
        if not needs or self.is_held_back:
            return effects
        waiting = self._waiting.get(pod.uid)
        if waiting is not None and waiting.retry_at is not None:
            # this is the retry; its count of attempts stays
            self._waiting[pod.uid] = replace(waiting, retry_at=None)
        admission = Admission(pod, needs, heeds_advice=heeds_advice)
        lacking = admission.lacking(self._resources, self._book)
        if lacking is not None:
            # found out before any plugin is asked, so that two pods that want the same pair never chase each other
            need, missing = lacking
            why = _why_not(self._resources[need.resource_name], missing)
            return effects + self._wait(_until_changed(pod, need, *why))
        refused = alignment.first_refused(self._topology, admission, self._resources, self._book)
        if refused is not None:
            return effects + self._wait(_until_aligned(pod, refused, needs))
        self._admissions[pod.uid] = admission
        if waiting is not None and waiting.attempts == 0:
            # what it waited for has come, and a plugin that is asked may take its time
            del self._waiting[pod.uid]
            effects.append(Publish(waiting.resource_name))
        return effects + self._advance(admission, now)

    def _advance(self, admission: Admission, now: float) -> list[Effect]:
        odd = admission.skip_held(self._book)
        need = admission.need
        if need is None:
            return self._commit(admission, now)
        if odd is not None:
            message = f"container {need.container} changed its request from {len(odd.device_ids)} to {need.count}"
            return self._give_up(admission, _until_changed(admission.pod, need, Reason.CHANGED_REQUEST, message), now)
        return self._choose(admission, need, now)

    def _choose(
        self, admission: Admission, need: Need, now: float, advice: tuple[str, ...] | None = None
    ) -> list[Effect]:
        """Pick devices for one need: reused ones first, then near ones as the plugin advises; or find out why not."""
        resource = self._resources[need.resource_name]
        reusable = admission.reusable(resource)
        free = resource.free(self._book.holders(need.resource_name))
        missing = max(need.count - len(reusable), 0)
        if missing > len(free) or not resource.is_ready:
            why = _why_not(resource, missing)
            return self._give_up(admission, _until_changed(admission.pod, need, *why), now)
        if not alignment.settle(self._topology, admission, self._resources, self._book):
            return self._misaligned(admission, need, now)
        picked = choice(resource.devices, need.count, reusable, free, admission.affinities.get(need.container))
        asks = resource.options.get_preferred_allocation_available and admission.heeds_advice
        if picked.missing > 0 and advice is None and asks:
            return [self._ask_preferred(admission, resource, picked)]
        admission.reserve(resource, picked.completed(advice or ()))
        admission.ticket = next(self._tickets)
        self._by_ticket[admission.ticket] = admission
        assert resource.endpoint is not None
        return [CallAllocate(admission.ticket, resource.name, resource.endpoint, admission.chosen)]

    def _ask_preferred(self, admission: Admission, resource: Resource, picked: Choice) -> AskPreferred:
        assert resource.endpoint is not None
        admission.ticket = next(self._tickets)
        self._by_ticket[admission.ticket] = admission
        return AskPreferred(
            admission.ticket, resource.name, resource.endpoint, picked.offered(), picked.taken, picked.count
        )

    def _misaligned(self, admission: Admission, need: Need, now: float) -> list[Effect]:
        """The rehearsal went well, and then advice or other pods took the near devices."""
        if admission.heeds_advice:
            # as rehearsed, then: or there is no way any more, and the rehearsal says so
            return self._begin_anew(admission, now, heeds_advice=False)
        earlier = self._waiting.get(admission.pod.uid)
        attempts = (earlier.attempts if earlier else 0) + 1
        waiting = _until_aligned(admission.pod, need, admission.needs)
        return self._give_up(
            admission, replace(waiting, attempts=attempts, retry_at=now + pause_seconds(attempts)), now
        )

    def _commit(self, admission: Admission, now: float) -> list[Effect]:
        pod = admission.pod
        for allocation in admission.answers:
            self._book.add(allocation)
        self._roll_back(admission)
        lacking = [n for n in pod.needs() if self._book.of(pod.uid, n.container, n.resource_name) is None]
        if not lacking:
            self._unmet.pop(pod.uid, None)
        touched = {allocation.resource_name for allocation in admission.answers}
        was_waiting = self._waiting.pop(pod.uid, None)
        if was_waiting is not None:
            touched.add(was_waiting.resource_name)
        effects: list[Effect] = [SaveCheckpoint(durable=True)] if admission.answers else []
        effects += [Publish(name) for name in sorted(touched)]
        asking = [a for a in admission.answers if self._resources[a.resource_name].options.pre_start_required]
        if asking:
            self._pre_starts.owe((a.pod_uid, a.container, a.resource_name) for a in asking)
            effects += self._pre_starts.due(self._book, self._resources, now)
        # it may ask for a resource that was registered while its transaction was under way
        goes_on = pod.uid in self._unmet and any(n.resource_name in self._resources for n in lacking)
        return effects + self._begin(pod, now) if goes_on else effects

    def _roll_back(self, admission: Admission) -> frozenset[str]:
        """End a transaction: its reservations go (committed devices are held by then). Returns the resources of these."""
        self._admissions.pop(admission.pod.uid, None)
        if admission.ticket is not None:
            self._by_ticket.pop(admission.ticket, None)
        freed = set()
        for resource_name, device_id in admission.reserved():
            self._resources[resource_name].reserved.pop(device_id, None)
            freed.add(resource_name)
        return frozenset(freed)

    def _begin_anew(self, admission: Admission, now: float, *, heeds_advice: bool) -> list[Effect]:
        """The transaction has lost what it counted on: from the start, unless its pod is ending meanwhile."""
        freed = self._roll_back(admission)
        uid = admission.pod.uid
        anew = self._begin(self._unmet[uid], now, heeds_advice=heeds_advice) if uid in self._unmet else []
        return anew + self.reconsider(freed, now, but=uid)

    def _give_up(self, admission: Admission, waiting: Waiting, now: float) -> list[Effect]:
        """The transaction cannot go on: its pod waits, and whoever waits for what it had reserved is tried."""
        freed = self._roll_back(admission)
        # a pod that has begun to end meanwhile waits for nothing
        effects = self._wait(waiting) if waiting.pod_uid in self._unmet else []
        return effects + self.reconsider(freed, now, but=waiting.pod_uid)

    def _wait(self, waiting: Waiting) -> list[Effect]:
        before = self._waiting.get(waiting.pod_uid)
        self._waiting[waiting.pod_uid] = waiting
        names = {waiting.resource_name} | ({before.resource_name} if before else set())
        return [] if before == waiting else [Publish(name) for name in sorted(names)]


def _until_changed(pod: Pod, need: Need, reason: str, message: str) -> Waiting:
    """Waiting for a change, not for time."""
    return Waiting(pod.uid, need.container, need.resource_name, reason, message)


def _until_aligned(pod: Pod, need: Need, needs: Iterable[Need]) -> Waiting:
    """Waiting for a change of any of the pod's resources: near devices of one are no use without those of another."""
    waiting = _until_changed(pod, need, Reason.TOPOLOGY_AFFINITY, f"container {need.container}: {alignment.MESSAGE}")
    return replace(waiting, others=frozenset(n.resource_name for n in needs))


def _why_not(resource: Resource, missing: int) -> tuple[str, str]:
    if resource.state is not EndpointState.RUNNING:
        return Reason.ENDPOINT_STOPPED, f"the device plugin of {resource.name} is not connected"
    if not resource.is_intent_known:
        return Reason.CORDONS_NOT_SYNCED, f"the cordons of {resource.name} on this node have not been read yet"
    if not resource.is_live:
        return Reason.DEVICE_LIST_PENDING, f"the device plugin of {resource.name} has not listed its devices yet"
    # how many are free changes while the pod waits, and stands beside it in the status
    return Reason.NOT_ENOUGH_DEVICES, f"{missing} of {resource.name} needed, and fewer are available"
