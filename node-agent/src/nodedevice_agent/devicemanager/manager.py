"""The device manager: a state machine over plugins, devices, pods and allocations.

Each public method is an event: it takes `now` (monotonic seconds), changes state, and returns effects for others to carry
out. Reads change nothing, and time passes only through tick(). Whatever the order of events, no device is ever held or
reserved by two pods, and a committed allocation stays until its pod has ended.
Source: kubelet device manager @ 1.37 (pkg/kubelet/cm/devicemanager), row by row; differences on purpose are in docs/differences.md.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import count

from nodedevice_agent.devicemanager import omitted_allocations
from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce, AllocateRetry
from nodedevice_agent.devicemanager.allocation.allocations import AllocationBook, Checkpoint
from nodedevice_agent.devicemanager.allocation.allocator import Allocator
from nodedevice_agent.devicemanager.allocation.answer_limit import answer_problem, kept_octets
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls, Reallocations
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.effects import Effect, Publish, SaveCheckpoint, TakeList
from nodedevice_agent.devicemanager.kubelet_requests import KubeletRequests
from nodedevice_agent.devicemanager.other_holders import OtherHolders
from nodedevice_agent.devicemanager.places import Places
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.releasing import Releasing
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.cordons import Cordon
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.physical_devices import PhysicalDevices
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.resource import EndpointState
from nodedevice_agent.devicemanager.resources.resource_table import SETTLE_SECONDS, IsConfigured, ResourceTable
from nodedevice_agent.devicemanager.runtime import RuntimeContainers
from nodedevice_agent.devicemanager.static_pods import StaticPod, StaticPods


class DeviceManager:
    """is_recovering: the checkpoint was lost; nothing is allocated until recovered() restores the allocations.

    waits_for_runtime: a runtime reports when containers have ended (`containers`, containers_ended); otherwise a pod that the
    API reports ended has no containers left. waits_for_cordons: nothing of a resource is allocated before cordoned() was called
    for it once. topology: whether a container's devices must be near each other. flapping: when changes of health are damped.
    allocate_retry: by resource name (* for all others) whether a failed Allocate is retried; always where nothing is set.
    """

    # whether it allocates; else somebody else does, and may know of other allocations
    is_allocating = True

    def __init__(
        self,
        now: float,
        checkpoint: Checkpoint | None = None,
        *,
        is_recovering: bool = False,
        waits_for_runtime: bool = False,
        waits_for_cordons: bool = False,
        topology: Topology | None = None,
        flapping: FlapDampingLimits | None = None,
        allocate_retry: Mapping[str, AllocateRetry] | None = None,
    ) -> None:
        self._table = ResourceTable(waits_for_cordons=waits_for_cordons, flapping=flapping)
        self.resources, self.cordons = self._table.by_name, self._table.cordons
        self.list_limit = ListLimit(self.resources)
        self.book = AllocationBook(self.resources)
        self._preference = Preference(self.resources)
        self._physical = PhysicalDevices(self.resources, self._preference)
        # what the runtime runs; changed by whoever handles the runtime's events, which also calls containers_ended()
        self.containers = RuntimeContainers()
        self.other_holders = OtherHolders(self.resources, self.book, self.containers)
        self._waits_for_runtime = waits_for_runtime
        # every pod of this node that has not ended, with or without devices; without unproven mirror pods
        self.pods: dict[str, Pod] = {}
        self.places = Places(self.resources, self.pods)
        # of these pods: what the kubelet has met, which the Pod above lacks
        self._kubelet_requests = KubeletRequests(self._table, self.book)
        self._static_pods = StaticPods(checkpoint.static_pods if checkpoint is not None else ())
        self._releasing = Releasing(self.book)
        tickets = count(1)
        self.allocate_once = AllocateOnce(allocate_retry or {}, self.book)
        self._reallocations = Reallocations(self.book, tickets, self.allocate_once, self.pods)
        self.pre_starts = PreStartCalls(self.book, tickets)
        self.allocator = Allocator(
            self.book,
            topology or Topology(),
            tickets,
            self.pre_starts,
            self.allocate_once,
            is_held_back=is_recovering,
        )
        if checkpoint is not None:
            self.cordons.update(checkpoint.cordons)
            self._restore(checkpoint, now)
            self.pre_starts.require(key for key in checkpoint.pre_starts if self.book.of(*key) is not None)
            self.allocate_once.restore(checkpoint.allocate_calls)
            if waits_for_runtime:
                self.containers.restore(checkpoint.unlisted, now)

    # -- plugins --------------------------------------------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        return self.allocator.is_held_back

    def connected(
        self, resource_name: str, endpoint: int, options: PluginOptions, now: float, socket: str = ""
    ) -> list[Effect]:
        """A plugin registered and returned its options. Calls go to the newest connection of a resource. socket: its path."""
        is_new = resource_name not in self.resources
        resource = self._table.add(resource_name)
        lists = resource.connections.answers_again(endpoint)
        resource.connect(endpoint, options, socket, settles_at=now + SETTLE_SECONDS)
        self._preference.added(resource)
        effects: list[Effect] = [Publish(resource_name)]
        if is_new:
            effects += [SaveCheckpoint(durable=False), *self._reconsider({resource_name}, now)]
        for listed in lists:
            effects += self.listed(resource_name, endpoint, listed, now)
        return effects

    def listed(self, resource_name: str, endpoint: int, listed: ListedDevices, now: float) -> list[Effect]:
        """A complete device list was received; without a change nothing is saved, published or retried."""
        resource = self.resources.get(resource_name)
        if resource is None:
            return []
        accepted = self.list_limit.accepted(resource, endpoint, listed)
        is_changed = resource.list(endpoint, accepted, now)
        self.list_limit.noted(resource)
        self.book.learn_originals(resource)
        if not is_changed:
            return []
        changed: list[Effect] = [SaveCheckpoint(durable=False), Publish(resource_name), *self.list_limit.due()]
        self._reallocations.forget_outdated(resource)
        changed += self._pending_calls(now)
        return [*changed, *self._reconsider_physical({resource_name, *self._preference.listed(resource_name)}, now)]

    def is_list_awaited(self, resource_name: str, endpoint: int) -> bool:
        """Whether the refused list of that connection is to be read again, as there is room for it."""
        resource = self.resources.get(resource_name)
        return resource is not None and resource.connections.is_awaited(endpoint)

    def disconnected(self, resource_name: str, endpoint: int, now: float, *, is_silent: bool = False) -> list[Effect]:
        """A plugin's stream ended. The end of the last connection makes all devices unhealthy and starts the grace period.

        is_silent: it is open, and the plugin does not answer; `connected` ends that.
        """
        resource = self.resources.get(resource_name)
        if resource is None:
            return []
        is_configured = self._table.is_configured(resource)
        is_changed = resource.disconnect(endpoint, now, is_configured=is_configured, is_silent=is_silent)
        self.list_limit.noted(resource)
        if not is_changed:
            return [*self.list_limit.due()]
        resource.is_silent = is_silent and resource.state is EndpointState.STOPPED
        changed: list[Effect] = [SaveCheckpoint(durable=False), Publish(resource_name), *self.list_limit.due()]
        return [*changed, *self._reconsider_physical({resource_name}, now)]

    def configured(self, is_configured: IsConfigured, now: float, returning: Iterable[str] = ()) -> list[Effect]:
        """What the configuration of built-in plugins names from now on, before they end and begin accordingly.

        The end of one that it does not name is meant, and has no grace period. Devices stay held until their pods end.
        returning: resources whose plugins list within moments, also where another takes their place.
        """
        over = self._table.configured(is_configured, returning, now)
        if not over:
            return []
        changed: list[Effect] = [
            SaveCheckpoint(durable=False),
            *(Publish(name) for name in over),
            *self._less_kept(over),
        ]
        return [*changed, *self._reconsider_physical(over, now)]

    def displaced(self, resource_names: Collection[str], by: str, now: float) -> list[Effect]:
        """Their place is another name's, "" where there are too many anyway; nobody waits for a grace period."""
        for name in resource_names:
            self.resources[name].displaced(by)
        changed: list[Effect] = [SaveCheckpoint(durable=False), *(Publish(name) for name in resource_names)]
        changed += self._less_kept(resource_names)
        return [*changed, *self._reconsider_physical(resource_names, now)] if resource_names else []

    def ranked(self, ranks: Mapping[str, int], awaited: Collection[str], now: float) -> list[Effect]:
        """Which resource of built-in plugins has priority where two have the same device: that of the lower number.

        awaited: resources whose plugins will list within moments.
        """
        return self._reconsider_physical((), now) if self._preference.ranked(ranks, awaited, now) else []

    def forget(self, resource_name: str) -> bool:
        """Forget a resource whose plugin is gone, unless a pod holds it or asks for it, or a device of it is cordoned that may be
        offered under another name; whether it is not known any more.

        Without effects: what remains of it are its NodeDevice and its metrics, which end by the same event.
        """
        resource = self.resources.get(resource_name)
        if resource is None:
            return True
        requested = (request.resource_name for pod in self.pods.values() for request in pod.device_requests)
        is_needed = resource.holders or resource.claimed_identities() or resource_name in requested
        if resource.state is not EndpointState.GONE or is_needed or resource.may_answer:
            return False
        del self.resources[resource_name]
        self.list_limit.forgotten(resource_name)
        self._releasing.forget(resource_name)
        for calls in (self._reallocations, self.pre_starts):
            calls.forget_resource(resource_name)
        return True

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon], now: float) -> list[Effect]:
        """All cordons in the NodeDevice of that UID, by device ID; uid "" where there is none: then the last ones stay.

        Free devices leave at once, held ones when their pod ends. What a cordoned device is, nobody gets under another name.
        """
        resource = self.resources.get(resource_name)
        changed = self._table.cordoned(resource, uid, in_spec) if resource is not None else []
        return [*changed, *self._reconsider_physical({resource_name}, now)] if changed else []

    def cordons_outdated(self, resource_name: str) -> None:
        """They may have changed while nobody watched: nothing of it is allocated before cordoned()."""
        if resource_name in self.resources:
            self._table.cordons_outdated(self.resources[resource_name])

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_synced(self, pods: Iterable[Pod], now: float) -> list[Effect]:
        """The complete list of this node's pods: a pod that is not in it is gone."""
        pods = tuple(pods)
        uids = {pod.uid for pod in pods}
        self._static_pods.synced(uids)
        present = {pod.uid: pod for pod in map(self._known_pod, pods) if pod is not None}
        effects: list[Effect] = []
        for pod in present.values():
            effects += self._take_over(pod)
        # an allocation that was recovered from the API has an unproven static pod under its mirror pod's UID
        over = (self.pods.keys() | self.book.by_pod.keys()) - present.keys() - uids
        over |= self.allocate_once.pod_uids() - present.keys() - uids - {pod.config_hash for pod in pods}
        self.allocator.begin_many()
        for uid in sorted(over):
            effects += self._pod_over(uid, now)
        for pod in present.values():
            if pod.has_ended:
                effects += self.pod_gone(pod.uid_in_api, now)
        effects += self.allocator.end_many(now)
        self.allocator.begin_many()
        for pod in present.values():
            if not pod.has_ended:
                effects += self._pod_known(pod, now)
        effects += self.allocator.end_many(now)
        holders = omitted_allocations.found(self.resources, self.pods.values(), self.book)
        changed, freed = self._table.possible_holders_are(holders)
        effects += changed + self._reconsider(freed, now)
        return effects + self._reallocations.due(now) + self.allocate_once.pods_synced(pods)

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod bound to this node, new or changed."""
        known = self._known_pod(pod)
        return self._pod_known(known, now) if known is not None else []

    def static_pods_listed(self, found: Iterable[StaticPod], now: float) -> list[Effect]:
        """The static pods among all sandboxes that the runtime can reach."""
        return self._static_pods_proven(self._static_pods.listed(found, self.book.by_pod.keys()), now)

    def static_pod_shown(self, found: StaticPod, now: float) -> list[Effect]:
        """The runtime has a sandbox of this static pod."""
        return self._static_pods_proven(self._static_pods.shown(found), now)

    def static_pod_removed(self, pod_uid: str) -> None:
        """The runtime has removed a sandbox of this static pod."""
        if pod_uid not in self.containers.by_pod:
            self._static_pods.removed(pod_uid)

    def _known_pod(self, pod: Pod) -> Pod | None:
        """The pod under the UID by which the runtime knows it; None for a mirror pod that is not proven to be one.

        Without a runtime there is no proof: there a mirror pod is a pod like any other.
        """
        is_ordinary = not self._waits_for_runtime or pod.uid in self.pods
        return pod if is_ordinary else self._static_pods.seen(pod)

    def _static_pods_proven(self, proven: Iterable[Pod], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for pod in proven:
            effects += [*self._take_over(pod), *self._pod_known(pod, now)]
            if pod.uid in self.book.by_pod:
                # the next start knows whose devices these are
                effects.append(SaveCheckpoint(durable=False))
        return effects + self._reallocations.due(now) if effects else []

    def _take_over(self, pod: Pod) -> list[Effect]:
        """What was recovered from the API for a mirror pod is its static pod's."""
        if pod.api_uid not in self.book.by_pod:
            return []
        self.book.rename(pod.api_uid, pod.uid)
        self._reallocations.drop(pod.api_uid)
        if pod.api_uid not in self.book.by_pod:
            self.pre_starts.rename(pod.api_uid, pod.uid)
        return [SaveCheckpoint(durable=False)]

    def _pod_known(self, pod: Pod, now: float) -> list[Effect]:
        if pod.has_ended:
            return self.pod_gone(pod.uid_in_api, now)
        pod = self._kubelet_requests.without(pod)
        if self.pods.get(pod.uid) == pod:
            return []
        is_first_sight = pod.uid not in self.pods
        self.pods[pod.uid] = pod
        self.allocate_once.pod_seen(pod)
        if not pod.device_requests:
            return []
        effects: list[Effect] = []
        if is_first_sight and pod.uid in self.book.by_pod:
            # the namespace and name of a restored allocation's pod are known only now
            requested = {request.resource_name for request in pod.device_requests}
            effects += [Publish(name) for name in sorted(requested & self.resources.keys())]
        effects += [Publish(name) for name in sorted(self.book.set_held_again(pod.uid))]
        effects += self._releasing.awaited_by(pod) if is_first_sight else []
        if pod.is_terminating:
            return effects + self.allocator.pod_terminating(pod.uid)
        return effects + self.allocator.pod_seen(pod, now)

    def pod_gone(self, uid: str, now: float) -> list[Effect]:
        """The API no longer has the object of that UID, or its pod has ended."""
        return self._pod_over(self._static_pods.gone(uid), now)

    def _pod_over(self, pod_uid: str, now: float) -> list[Effect]:
        pod = self.pods.pop(pod_uid, None)
        self._kubelet_requests.forget(pod_uid)
        effects = self._releasing.awaited_by(pod) if pod is not None else []
        effects += self.allocator.pod_ended(pod_uid, now) + self.pre_starts.forget(pod_uid)
        effects += self.allocate_once.forget(pod_uid)
        if self._waits_for_runtime and (self._may_run(pod_uid) or self.pre_starts.has_orphaned_call(pod_uid)):
            self._releasing.pod_ended(pod_uid, now)
            return effects
        return effects + self._release(pod_uid, now) + self.possible_holder_ended(pod_uid, now)

    def possible_holder_ended(self, pod_uid: str, now: float) -> list[Effect]:
        """An event after which a pod may be gone for good: what it may have held is free, where it was the last such pod."""
        runs = self._waits_for_runtime and (not self.containers.is_synchronized or pod_uid in self.containers.by_pod)
        if runs or pod_uid in self.pods:
            return []
        effects, freed = self._table.possible_holder_ended(pod_uid)
        return effects + self._reconsider(freed, now)

    def kubelet_allocated(self, pod_uid: str, requests: Collection[tuple[str, str]], now: float) -> list[Effect]:
        """The kubelet's own device manager has met these requests of a pod, each a container and a resource name.

        It gives the containers their devices itself, so the pod gets none here, and lacks none. Ignored for a resource that a
        plugin serves here, and for what is allocated here.
        """
        pod = self.pods.get(pod_uid)
        if pod is None or pod_uid in self.allocator.in_progress or not self._kubelet_requests.add(pod, requests):
            return []
        return [*self.allocator.pod_terminating(pod_uid), *self._pod_known(pod, now)]

    def containers_ended(self, pod_uid: str, now: float) -> list[Effect]:
        """The runtime reported that all containers of a pod that has ended or is gone have ended: its devices are free."""
        is_free = pod_uid in self.book.releasing and not self.pre_starts.has_orphaned_call(pod_uid)
        return self._release(pod_uid, now) if is_free else []

    # -- responses of plugins -------------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> list[Effect]:
        """GetPreferredAllocation's response, empty if the call failed. The devices among them that are free are taken first."""
        return self.allocator.preferred(ticket, device_ids, now)

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> list[Effect]:
        """Allocate succeeded."""
        if problem := self._answer_problem(ticket, response):
            return self.allocate_failed(ticket, problem, now)
        if ticket in self._reallocations.in_flight:
            return self._reallocations.allocated(ticket, response)
        effects = self.allocator.allocated(ticket, response, now)
        return effects + self._published_with(effects)

    def _answer_problem(self, ticket: int, response: AllocateResponse) -> str:
        """Why there is no room for it; empty where there is."""
        lost = self._reallocations.in_flight.get(ticket)
        # The IDs of a lost response are counted already.
        name, ids = (lost[2], ()) if lost is not None else self.allocator.awaited(ticket)
        kept = self.book.octets + self.allocator.octets()
        return answer_problem(name, kept_octets(response.octets, response.edits, ids), kept) if name else ""

    def allocate_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """Allocate failed, timed out or returned an invalid response: release the pod's reservations, retry after a backoff."""
        if ticket in self._reallocations.in_flight:
            self._reallocations.failed(ticket, message, now)
            return []
        return self.allocator.allocate_failed(ticket, message, now)

    def pre_started(self, ticket: int, now: float) -> list[Effect]:
        """PreStartContainer succeeded."""
        effects = self.pre_starts.started(ticket) + self._after_orphaned_call(ticket, now)
        return effects + self.pre_starts.due(now)

    def pre_start_failed(self, ticket: int, message: str, now: float) -> list[Effect]:
        """PreStartContainer failed or timed out. The devices stay held; the call is retried after a backoff."""
        return self.pre_starts.failed(ticket, message, now) + self._after_orphaned_call(ticket, now)

    # -- time ---------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The time of the next tick() that has something to do, monotonic seconds."""
        retries = (self.allocator.pending, self._reallocations.failures, self.pre_starts.failures)
        times = [*(calls.next_retry for calls in retries), self._releasing.next_deadline]
        times += [self._table.next_deadline(), self._preference.deadline, self.allocator.next_turn]
        return min((t for t in times if t is not None), default=None)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed: grace periods end, restarts settle, damping of flapping devices ends, failed calls are retried."""
        effects, recovered = self._table.tick(now)
        effects += self._less_kept(effect.resource_name for effect in tuple(effects) if isinstance(effect, Publish))
        effects += self._reconsider_physical([*recovered, *self._preference.due(now)], now)
        effects += self._releasing.due(now) + self._pending_calls(now)
        return effects + self.allocator.retry(now)

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, known: Checkpoint, now: float) -> list[Effect]:
        """What was recovered from the API after the checkpoint was lost; Allocate is called again for its allocations."""
        for name, cordons in known.cordons.items():
            self.cordons.setdefault(name, cordons)
        self._restore(known, now)
        self.allocate_once.checkpoint_lost(self.pods.values())
        self.allocator.is_held_back = False
        effects: list[Effect] = [SaveCheckpoint(durable=True)]
        self._physical.hold_back(self.other_holders.given_numbers())
        effects += [Publish(name) for name in sorted(self.resources)]
        effects += self._reallocations.due(now)
        return effects + self._reconsider(self.resources.keys(), now)

    def checkpoint(self) -> Checkpoint:
        """What must survive a restart. Includes every known resource, but no Gone one without allocations."""
        registered = self._table.registered()
        allocations = tuple(self.book) if self.book.by_pod else ()
        return Checkpoint(
            allocations,
            registered,
            pre_starts=tuple(self.pre_starts.required),
            unlisted=self.containers.unlisted(),
            static_pods=self._static_pods.of(self.book.by_pod.keys() | self.allocate_once.pod_uids()),
            allocate_calls=self.allocate_once.keys(),
            cordons=dict(self.cordons),
            possible_holders=omitted_allocations.saved(self.resources),
            part_sizes={name: r.part_sizes for name, r in self.resources.items() if r.part_sizes},
            identities={name: found for name, r in self.resources.items() if (found := r.claimed_identities())},
            scopes={name: r.scope for name, r in self.resources.items() if r.scope is not None},
            gone=tuple(name for name, resource in self.resources.items() if name not in registered),
        )

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        return self.pods.get(pod_uid)

    def pending(self, resource_name: str) -> list[PendingAllocation]:
        """Pending allocations, failed PreStartContainer calls and lost responses of a resource, by pod UID and container."""
        failed, lost = self.pre_starts.failures, self.allocate_once.lost
        everything = (*self.allocator.pending.values(), *failed.values(), *lost.values())
        found = (pending for pending in everything if pending.resource_name == resource_name)
        return sorted(found, key=lambda pending: (pending.pod_uid, pending.container))

    # -- internals ----------------------------------------------------------------------------------------------------------

    def _less_kept(self, resource_names: Iterable[str]) -> list[TakeList]:
        """These are gone, or may be: there may be room for lists of others."""
        for name in resource_names:
            self.list_limit.noted(self.resources[name])
        return self.list_limit.due()

    def _restore(self, known: Checkpoint, now: float) -> None:
        self._table.restore(known, now)
        for allocation in known.allocations:
            self.book.restore(allocation)
        for name, identities in known.identities.items():
            if name in self.resources:
                self.resources[name].remember(identities)

    def _pending_calls(self, now: float) -> list[Effect]:
        """Calls about held devices: Allocate where its response was lost, and PreStartContainer."""
        effects = self._reallocations.due(now) if self.book.unanswered else []
        if self.pre_starts.required or self.pre_starts.undecided:
            effects += self.pre_starts.due(now)
        return effects

    def _reconsider(self, resource_names: Iterable[str], now: float) -> list[Effect]:
        """Something about these resources changed, which pods that lack one of them may be waiting for."""
        return self.allocator.reconsider(resource_names, now) if self.allocator.unallocated else []

    def _reconsider_physical(self, resource_names: Collection[str], now: float) -> list[Effect]:
        """The same where a use of physical devices may have begun or ended; that of another resource may begin now."""
        others = self._physical.hold_back(self.other_holders.given_numbers()) - {*resource_names}
        effects: list[Effect] = [Publish(name) for name in sorted(others)]
        return effects + self._reconsider({*resource_names, *others}, now)

    def containers_changed(self, pod_uid: str, now: float) -> list[Effect]:
        """A container of this pod runs or has ended: the device files that it has are known, or nobody's any more."""
        return self._reconsider_physical((), now) if pod_uid in self.book.by_pod else []

    def containers_listed(self, now: float) -> list[Effect]:
        """The runtime has listed its containers: after a restart, the device files that they have are known by that alone."""
        return self._reconsider_physical((), now)

    def _published_with(self, effects: Iterable[Effect]) -> list[Effect]:
        """The resources whose devices are held back for those of these, or by now for others: they show which pod has them."""
        changed = {effect.resource_name for effect in effects if isinstance(effect, Publish)}
        if not changed:
            return []
        others = self._physical.hold_back(self.other_holders.given_numbers())
        for name, resource in self.resources.items():
            if any(other.resource_name in changed for other in resource.held_back.values()):
                others.add(name)
        return [Publish(name) for name in sorted(others - changed)]

    def _after_orphaned_call(self, ticket: int, now: float) -> list[Effect]:
        """A call for an ended pod has returned. Until then its plugin may have been working on the devices."""
        pod_uid = self.pre_starts.orphan_ended(ticket)
        return [] if pod_uid is None or self._may_run(pod_uid) else self.containers_ended(pod_uid, now)

    def _may_run(self, pod_uid: str) -> bool:
        """Whether a container that holds devices may still have a process."""
        holding = frozenset(allocation.container for allocation in self.book.of_pod(pod_uid))
        return not self.containers.have_ended(pod_uid, holding)

    def _release(self, pod_uid: str, now: float) -> list[Effect]:
        touched = self.book.release(pod_uid)
        if not touched:
            return []
        self._reallocations.drop(pod_uid)
        for name in touched:
            self.resources[name].released()
        effects: list[Effect] = [SaveCheckpoint(durable=False)]
        effects += [Publish(name) for name in sorted(touched)]
        return effects + self._reconsider_physical(touched, now)
