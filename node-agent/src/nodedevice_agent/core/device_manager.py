"""The device manager: a state machine over plugins, devices, pods and allocations.

Each public method is an event: it takes `now` (monotonic seconds), changes state, and returns effects for the edges to carry
out. Reads change nothing, and time passes only through tick(). Whatever happens between two events, no device is ever held
or reserved by two pods, and what was committed stays until its pod is over.
Source: kubelet device manager @ 1.37 (pkg/kubelet/cm/devicemanager), row by row; differences on purpose are in docs/differences.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import count

from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD, Reason

from nodedevice_agent.core import alignment
from nodedevice_agent.core.admission import Admission
from nodedevice_agent.core.allocations import Allocation, AllocationBook
from nodedevice_agent.core.checkpoint import Checkpoint
from nodedevice_agent.core.devices import DeviceList
from nodedevice_agent.core.effects import AskPreferred, CallAllocate, Effect, PodNotServed, Publish, SaveCheckpoint
from nodedevice_agent.core.flapping import FlappingLimits
from nodedevice_agent.core.pods import Need, Pod
from nodedevice_agent.core.pre_start import PreStarts
from nodedevice_agent.core.reanswer import Reanswers
from nodedevice_agent.core.resources import EndpointState, PluginOptions, Resource
from nodedevice_agent.core.selection import Choice, choice
from nodedevice_agent.core.topology import Topology
from nodedevice_agent.core.waiting import Waiting, pause_seconds

# How long the last published numbers hold after a restart while plugins are awaited.
SETTLE_SECONDS = 10.0


class DeviceManager:
    """is_recovering: the checkpoint was lost; nothing is given out until recovered() says who holds what.

    waits_for_runtime: a runtime tells when containers have ended (containers_ended); without one the API's word is taken.
    waits_for_intent: no device of a resource is given out before cordoned() has told of it once.
    topology: whether a container's devices have to be near each other. flapping: when a device's health is no longer believed.
    """

    def __init__(
        self,
        now: float,
        checkpoint: Checkpoint | None = None,
        *,
        is_recovering: bool = False,
        waits_for_runtime: bool = False,
        waits_for_intent: bool = False,
        topology: Topology | None = None,
        flapping: FlappingLimits | None = None,
    ) -> None:
        self.book = AllocationBook()
        self.resources: dict[str, Resource] = {}
        self.is_recovering = is_recovering
        self._waits_for_runtime = waits_for_runtime
        self._waits_for_intent = waits_for_intent
        self._topology = topology or Topology()
        self._flapping = flapping or FlappingLimits()
        self._pods: dict[str, Pod] = {}
        # pods that are over and still in the API: nothing is theirs, but who asks for one by name gets an answer
        self._over: dict[str, Pod] = {}
        self._unmet: dict[str, Pod] = {}
        self._waiting: dict[str, Waiting] = {}
        self._admissions: dict[str, Admission] = {}
        self._by_ticket: dict[int, Admission] = {}
        self._tickets = count(1)
        self._reanswers = Reanswers(self._tickets)
        self._pre_starts = PreStarts(self._tickets)
        self._said_unserved: set[tuple[str, str]] = set()
        if checkpoint is not None:
            self._restore(checkpoint.allocations, checkpoint.registered, now)
            self._pre_starts.owe(key for key in checkpoint.pre_starts if self.book.of(*key) is not None)

    # -- plugins --------------------------------------------------------------------------------------------------------

    def connected(self, resource_name: str, endpoint: int, options: PluginOptions, now: float) -> list[Effect]:
        """A plugin registered and told its options. The newest connection of a resource is the one that is asked."""
        resource = self.resources.get(resource_name)
        is_new = resource is None
        if resource is None:
            resource = self.resources[resource_name] = self._new_resource(resource_name)
        resource.connect(endpoint, options)
        effects: list[Effect] = [Publish(resource_name)]
        if is_new:
            effects.append(SaveCheckpoint(durable=False))
            effects += self._reconsider({resource_name}, now)
        return effects

    def listed(self, resource_name: str, endpoint: int, listed: DeviceList, now: float) -> list[Effect]:
        """A complete device list came; nothing is saved, published or tried again when it changes nothing."""
        resource = self.resources.get(resource_name)
        if resource is None or not resource.list(endpoint, listed, now):
            return []
        effects: list[Effect] = [SaveCheckpoint(durable=False), Publish(resource_name)]
        effects += self._owed_calls(now)
        return effects + self._reconsider({resource_name}, now)

    def disconnected(self, resource_name: str, endpoint: int, now: float) -> list[Effect]:
        """A plugin's stream ended. The last connection's end makes all devices unhealthy and starts the grace period."""
        resource = self.resources.get(resource_name)
        if resource is None or not resource.disconnect(endpoint, now):
            return []
        return [SaveCheckpoint(durable=False), Publish(resource_name), *self._reconsider({resource_name}, now)]

    def cordoned(self, resource_name: str, device_ids: Iterable[str], now: float) -> list[Effect]:
        """The administrator's intent, complete. Free devices leave at once, held ones when their pod ends."""
        resource = self.resources.get(resource_name)
        wanted = frozenset(device_ids)
        if ALL_DEVICES_WORD in wanted:
            wanted |= {ALL_DEVICES}
        if resource is None or (resource.is_intent_known and resource.cordoned_ids == wanted):
            return []
        resource.cordoned_ids = wanted
        resource.is_intent_known = True
        return [Publish(resource_name), *self._reconsider({resource_name}, now)]

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_synced(self, pods: Iterable[Pod], now: float) -> list[Effect]:
        """The complete list of this node's pods: whoever is not in it is gone."""
        present = {pod.uid: pod for pod in pods}
        effects: list[Effect] = []
        for uid in sorted((self._pods.keys() | self._over.keys() | self.book.pod_uids()) - present.keys()):
            effects += self.pod_gone(uid, now)
        for pod in present.values():
            effects += self.pod_seen(pod, now)
        return effects

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod bound to this node, new or changed."""
        if pod.is_over:
            self._pods.pop(pod.uid, None)
            self._over[pod.uid] = pod
            return self._end(pod.uid, now)
        if self._pods.get(pod.uid) == pod:
            return []
        is_first_sight = pod.uid not in self._pods
        self._pods[pod.uid] = pod
        if not any(True for _ in pod.needs()):
            return []
        effects: list[Effect] = []
        if is_first_sight and pod.uid in self.book.pod_uids():
            # names of a restored allocation's pod are known only now
            effects += [
                Publish(name) for name in sorted({need.resource_name for need in pod.needs()} & self.resources.keys())
            ]
        if pod.is_terminating:
            return effects + self._stop_waiting(pod.uid)
        if pod.uid not in self._admissions:
            self._unmet[pod.uid] = pod
            effects += self._begin(pod, now)
        return effects

    def pod_gone(self, pod_uid: str, now: float) -> list[Effect]:
        """The API no longer has the pod."""
        self._pods.pop(pod_uid, None)
        self._over.pop(pod_uid, None)
        return self._end(pod_uid, now)

    def containers_ended(self, pod_uid: str, now: float) -> list[Effect]:
        """The runtime says that all containers of a pod that is over or gone have ended: its devices are free."""
        return self._release(pod_uid, now) if self.book.is_releasing(pod_uid) else []

    # -- answers of plugins ---------------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> list[Effect]:
        """GetPreferredAllocation's advice, empty where it failed. What is free in it is taken, the rest is chosen here."""
        admission = self._by_ticket.pop(ticket, None)
        if admission is None or admission.need is None:
            return []
        admission.ticket = None
        return self._choose(admission, admission.need, now, advice=tuple(device_ids))

    def allocated(self, ticket: int, response: bytes, now: float) -> list[Effect]:
        """Allocate was answered. response: the ContainerAllocateResponse, protobuf bytes."""
        if self._reanswers.is_waiting_for(ticket):
            return self._reanswers.answered(ticket, response, self.book)
        admission = self._by_ticket.pop(ticket, None)
        if admission is None or admission.need is None:
            return []
        if admission.has_lost(self.resources):
            # judged against what is listed when the answer comes: a device may have gone meanwhile
            return self._begin_anew(admission, now, heeds_advice=admission.heeds_advice)
        admission.answered(self.resources[admission.need.resource_name], response)
        return self._advance(admission, now)

    def allocate_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """Allocate failed, timed out or made no sense. The pod's reservations are dropped and it is tried again later."""
        if self._reanswers.is_waiting_for(ticket):
            self._reanswers.failed(ticket, now)
            return []
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

    def pre_started(self, ticket: int, now: float) -> list[Effect]:
        """PreStartContainer was answered."""
        return self._pre_starts.started(ticket) + self._pre_starts.due(self.book, self.resources, now)

    def pre_start_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """PreStartContainer failed or timed out. The devices stay held, and it is called again later."""
        return self._pre_starts.failed(ticket, message, now)

    # -- time ---------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When tick() has something to do, monotonic seconds."""
        times = [w.retry_at for w in self._waiting.values()]
        for resource in self.resources.values():
            times += [resource.grace_ends_at, resource.settle_until, resource.flapping.next_deadline()]
        times += [self._reanswers.next_deadline(), self._pre_starts.next_deadline()]
        return min((t for t in times if t is not None), default=None)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: grace periods end, restarts settle, flapping devices calm down, failed calls are tried again."""
        effects: list[Effect] = []
        for name, resource in sorted(self.resources.items()):
            if resource.settle_until is not None and resource.settle_until <= now:
                resource.settle_until = None
                effects.append(Publish(name))
            if resource.grace_ends_at is not None and resource.grace_ends_at <= now:
                resource.expire()
                effects += [SaveCheckpoint(durable=False), Publish(name)]
            if resource.flapping.calm(now):
                effects += [Publish(name), *self._reconsider({name}, now)]
        effects += self._owed_calls(now)
        for uid, waiting in list(self._waiting.items()):
            if waiting.retry_at is not None and waiting.retry_at <= now and uid in self._unmet:
                effects += self._begin(self._unmet[uid], now)
        return effects

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, allocations: Iterable[Allocation], now: float) -> list[Effect]:
        """What the API knew of allocations, after the checkpoint was lost; their answers are asked for again."""
        self._restore(allocations, (), now)
        self.is_recovering = False
        effects: list[Effect] = [SaveCheckpoint(durable=True)]
        effects += [Publish(name) for name in sorted(self.resources)]
        effects += self._reanswers.due(self.book, self.resources, now)
        return effects + self._reconsider(self.resources.keys(), now)

    def checkpoint(self) -> Checkpoint:
        """What has to survive a restart. Resources are named while they are known; a Gone one without holders is not."""
        registered = {
            name: resource.listed.healthy_ids if resource.is_live else ()
            for name, resource in self.resources.items()
            if resource.state is not EndpointState.GONE or self.book.holders(name)
        }
        return Checkpoint(tuple(self.book), registered, pre_starts=self._pre_starts.owed())

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        return self._pods.get(pod_uid)

    def pods(self) -> Collection[Pod]:
        """Every pod of this node that is not over, with or without devices."""
        return self._pods.values()

    def pods_over(self) -> Collection[Pod]:
        """Pods that have succeeded or failed and are still in the API."""
        return self._over.values()

    def waiting(self, resource_name: str) -> list[Waiting]:
        everyone = (*self._waiting.values(), *self._pre_starts.waiting())
        found = (w for w in everyone if w.resource_name == resource_name)
        return sorted(found, key=lambda w: (w.pod_uid, w.container))

    # -- how it is done -----------------------------------------------------------------------------------------------------

    def _restore(
        self, allocations: Iterable[Allocation], registered: Mapping[str, object] | tuple[()], now: float
    ) -> None:
        allocations = tuple(allocations)
        names = dict.fromkeys(registered) | dict.fromkeys(a.resource_name for a in allocations)
        for name in names:
            if name not in self.resources:
                self.resources[name] = self._new_resource(name, settle_until=now + SETTLE_SECONDS)
                self.resources[name].restored(now)
        for allocation in allocations:
            self.book.add(allocation)

    def _new_resource(self, name: str, settle_until: float | None = None) -> Resource:
        is_intent_known = not self._waits_for_intent
        return Resource(name, settle_until, is_intent_known=is_intent_known, flapping=self._flapping)

    def _owed_calls(self, now: float) -> list[Effect]:
        """Calls about devices that are held: for answers that were lost, and before containers start."""
        again = self._reanswers.due(self.book, self.resources, now)
        return again + self._pre_starts.due(self.book, self.resources, now)

    def _begin(self, pod: Pod, now: float, *, heeds_advice: bool = True) -> list[Effect]:
        """Start the pod's transaction for the resources that are known here."""
        effects: list[Effect] = []
        needs = []
        for need in pod.needs():
            if need.resource_name in self.resources:
                needs.append(need)
            elif (pod.uid, need.resource_name) not in self._said_unserved:
                self._said_unserved.add((pod.uid, need.resource_name))
                effects.append(PodNotServed(f"{pod.namespace}/{pod.name}", need.container, need.resource_name))
        if not needs or self.is_recovering:
            return effects
        waiting = self._waiting.get(pod.uid)
        if waiting is not None and waiting.retry_at is not None:
            # this is the retry; its count of attempts stays
            self._waiting[pod.uid] = replace(waiting, retry_at=None)
        admission = Admission(pod, needs, heeds_advice=heeds_advice)
        lacking = admission.lacking(self.resources, self.book)
        if lacking is not None:
            # found out before any plugin is asked, so that two pods that want the same pair never chase each other
            need, missing, free = lacking
            why = _why_not(self.resources[need.resource_name], missing, free)
            return effects + self._wait(_until_changed(pod, need, *why))
        refused = alignment.first_refused(self._topology, admission, self.resources, self.book)
        if refused is not None:
            return effects + self._wait(_until_aligned(pod, refused, needs))
        self._admissions[pod.uid] = admission
        return effects + self._advance(admission, now)

    def _advance(self, admission: Admission, now: float) -> list[Effect]:
        odd = admission.skip_held(self.book)
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
        resource = self.resources[need.resource_name]
        reusable = admission.reusable(resource)
        free = resource.free(self.book.holders(need.resource_name))
        missing = max(need.count - len(reusable), 0)
        if missing > len(free) or not resource.is_ready:
            why = _why_not(resource, missing, len(free))
            return self._give_up(admission, _until_changed(admission.pod, need, *why), now)
        if not alignment.settle(self._topology, admission, self.resources, self.book):
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
            self.book.add(allocation)
        self._roll_back(admission)
        if all(self.book.of(pod.uid, n.container, n.resource_name) for n in pod.needs()):
            self._unmet.pop(pod.uid, None)
        touched = {allocation.resource_name for allocation in admission.answers}
        was_waiting = self._waiting.pop(pod.uid, None)
        if was_waiting is not None:
            touched.add(was_waiting.resource_name)
        effects: list[Effect] = [SaveCheckpoint(durable=True)] if admission.answers else []
        effects += [Publish(name) for name in sorted(touched)]
        asking = [a for a in admission.answers if self.resources[a.resource_name].options.pre_start_required]
        if asking:
            self._pre_starts.owe((a.pod_uid, a.container, a.resource_name) for a in asking)
            effects += self._pre_starts.due(self.book, self.resources, now)
        return effects

    def _roll_back(self, admission: Admission) -> frozenset[str]:
        """End a transaction: its reservations go (committed devices are held by then). Returns the resources of these."""
        self._admissions.pop(admission.pod.uid, None)
        if admission.ticket is not None:
            self._by_ticket.pop(admission.ticket, None)
        freed = set()
        for resource_name, device_id in admission.reserved():
            self.resources[resource_name].reserved.pop(device_id, None)
            freed.add(resource_name)
        return frozenset(freed)

    def _begin_anew(self, admission: Admission, now: float, *, heeds_advice: bool) -> list[Effect]:
        """The transaction has lost what it counted on: from the start, unless its pod is ending meanwhile."""
        freed = self._roll_back(admission)
        uid = admission.pod.uid
        anew = self._begin(self._unmet[uid], now, heeds_advice=heeds_advice) if uid in self._unmet else []
        return anew + self._reconsider(freed, now, but=uid)

    def _give_up(self, admission: Admission, waiting: Waiting, now: float) -> list[Effect]:
        """The transaction cannot go on: its pod waits, and whoever waits for what it had reserved is tried."""
        freed = self._roll_back(admission)
        # a pod that has begun to end meanwhile waits for nothing
        effects = self._wait(waiting) if waiting.pod_uid in self._unmet else []
        return effects + self._reconsider(freed, now, but=waiting.pod_uid)

    def _wait(self, waiting: Waiting) -> list[Effect]:
        before = self._waiting.get(waiting.pod_uid)
        self._waiting[waiting.pod_uid] = waiting
        names = {waiting.resource_name} | ({before.resource_name} if before else set())
        return [] if before == waiting else [Publish(name) for name in sorted(names)]

    def _stop_waiting(self, pod_uid: str) -> list[Effect]:
        """The pod is ending: it gets nothing more."""
        self._unmet.pop(pod_uid, None)
        waiting = self._waiting.pop(pod_uid, None)
        return [Publish(waiting.resource_name)] if waiting is not None else []

    def _reconsider(self, resource_names: Iterable[str], now: float, but: str = "") -> list[Effect]:
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

    def _end(self, pod_uid: str, now: float) -> list[Effect]:
        """The pod is over or gone for the API."""
        effects = self._stop_waiting(pod_uid) + self._pre_starts.forget(pod_uid)
        self._said_unserved = {said for said in self._said_unserved if said[0] != pod_uid}
        admission = self._admissions.get(pod_uid)
        if admission is not None:
            effects += self._reconsider(self._roll_back(admission), now)
        if self._waits_for_runtime:
            return effects + [Publish(name) for name in sorted(self.book.set_releasing(pod_uid))]
        return effects + self._release(pod_uid, now)

    def _release(self, pod_uid: str, now: float) -> list[Effect]:
        touched = self.book.release(pod_uid)
        if not touched:
            return []
        self._reanswers.forget(pod_uid)
        effects: list[Effect] = [SaveCheckpoint(durable=False)]
        effects += [Publish(name) for name in sorted(touched)]
        return effects + self._reconsider(touched, now)


def _until_changed(pod: Pod, need: Need, reason: str, message: str) -> Waiting:
    """Waiting for a change, not for time."""
    return Waiting(pod.uid, need.container, need.resource_name, reason, message)


def _until_aligned(pod: Pod, need: Need, needs: Iterable[Need]) -> Waiting:
    """Waiting for a change of any of the pod's resources: near devices of one are no use without those of another."""
    waiting = _until_changed(pod, need, Reason.TOPOLOGY_AFFINITY, f"container {need.container}: {alignment.MESSAGE}")
    return replace(waiting, others=frozenset(n.resource_name for n in needs))


def _why_not(resource: Resource, missing: int, free: int) -> tuple[str, str]:
    if resource.state is not EndpointState.RUNNING:
        return Reason.ENDPOINT_STOPPED, f"the device plugin of {resource.name} is not connected"
    if not resource.is_intent_known:
        return Reason.INTENT_UNKNOWN, f"the cordons of {resource.name} on this node have not been read yet"
    if not resource.is_live:
        return Reason.NO_DEVICE_LIST_YET, f"the device plugin of {resource.name} has not listed its devices yet"
    return Reason.NOT_ENOUGH_DEVICES, f"{missing} of {resource.name} needed, {free} free"
