"""The device manager: a state machine over plugins, devices, pods and allocations.

Each public method of the first five groups is an event: it takes `now` (monotonic seconds), changes its own subject and marks what
follows. settle() carries that out in stages, and returns the effects for the host; it is called after each event, in the same turn.
Reads change nothing, and time passes only through tick(). Whatever the order of events, no device is ever held or reserved by two
pods, and a committed allocation stays until its pod has ended.
Source: kubelet device manager @ 1.37 (pkg/kubelet/cm/devicemanager), row by row; differences on purpose are in docs/differences.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import count

from nodedevice_agent.devicemanager import omitted_allocations
from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce, AllocateRetry
from nodedevice_agent.devicemanager.allocation.allocator import Allocator
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls, Reallocations
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.attribution.stage import Attribution
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.kubelet_requests import KubeletRequests
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.other_holders import OtherHolders
from nodedevice_agent.devicemanager.places import Places
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.releasing import Releasing
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.physical_devices import PhysicalDevices
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.resource_table import SETTLE_SECONDS, IsConfigured, ResourceTable
from nodedevice_agent.devicemanager.runtime import RuntimeContainers
from nodedevice_agent.devicemanager.static_pods import StaticPod, StaticPods


class DeviceManager:
    """is_recovering: the checkpoint was lost; nothing is allocated until recovered() restores the allocations.

    waits_for_runtime: a runtime reports when containers have ended (`containers`, containers_ended); otherwise a pod that the
    API reports ended has no containers left. waits_for_cordons: nothing of a resource is allocated before cordoned() was called
    for it once. topology: whether a container's devices must be near each other. flapping: when changes of health are damped.
    allocate_retry: by resource name (* for all others) whether a failed Allocate is retried; always where nothing is set.
    is_attributed: by resource name, whether the kubelet allocates its devices: these are attributed to pods, not allocated. None
    where it allocates none. delivery: of new allocations, and of restored ones that record none.
    make_list_limit: of the resources; what their plugins may list.
    """

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
        is_attributed: Callable[[str], bool] | None = None,
        delivery: str = "",
        make_list_limit: Callable[[Mapping[str, Resource]], ListLimit] = ListLimit,
    ) -> None:
        self._marks = marks = Marks()
        self.deadlines = deadlines = Deadlines()
        self._table = ResourceTable(
            marks, deadlines, waits_for_cordons=waits_for_cordons, flapping=flapping, is_attributed=is_attributed
        )
        self.resources, self.cordons = self._table.by_name, self._table.cordons
        self.list_limit = make_list_limit(self.resources)
        self.book = AllocationBook(self.resources, delivery)
        self._preference = Preference(self.resources, deadlines)
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
        self._releasing = Releasing(self.book, marks, deadlines)
        self.topology = topology or Topology()
        tickets = count(1)
        self.allocate_once = AllocateOnce(allocate_retry or {}, self.book, marks)
        self._reallocations = Reallocations(self.book, marks, deadlines, tickets, self.allocate_once, self.pods)
        self.pre_starts = PreStartCalls(self.book, marks, deadlines, tickets)
        self.allocator = Allocator(
            self.book,
            marks,
            deadlines,
            self.topology,
            tickets,
            self.pre_starts,
            self.allocate_once,
            is_held_back=is_recovering,
        )
        self.attribution = Attribution(self._table, self.book, self.pods, marks)
        if checkpoint is not None:
            checkpoint = self.attribution.restored(checkpoint)
            self.cordons.update(checkpoint.cordons)
            self._restore(checkpoint, now)
            self.pre_starts.require(key for key in checkpoint.pre_starts if self.book.of(*key) is not None)
            self.allocate_once.restore(checkpoint.allocate_calls)
            if waits_for_runtime:
                self.containers.restore(checkpoint.unlisted, now)

    # -- after each event -------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> list[Effect]:
        """What follows from the events since the last call: limits, claims of devices, attribution and allocation, calls that are
        due. Returns the effects, each once, what must be on disk first. A stage without a mark costs nothing.
        """
        marks, allocator = self._marks, self.allocator
        if self.list_limit.has_shrunk:
            self.list_limit.settle(marks)
        while True:
            if marks.are_claims_due:
                self._settle_claims()
            elif marks.is_attribution_due:
                self.attribution.settle()
            elif allocator.due or (marks.awaited and allocator.unallocated):
                allocator.settle(now)
            elif marks.are_calls_due:
                self._settle_calls(now)
            else:
                break
        marks.awaited.clear()
        return marks.take()

    def _settle_claims(self) -> None:
        """Which use of a device counts, where several resources have it: what the others hold back may have changed."""
        marks, self._marks.are_claims_due = self._marks, False
        changed = self._physical.hold_back(self.other_holders.given_numbers())
        shown = marks.shown_with
        if shown and self._physical.found:
            for name, resource in self.resources.items():
                if any(other.resource_name in shown for other in resource.use.held_back.values()):
                    marks.publish(name)
        shown.clear()
        if changed:
            marks.publish_all(changed)
            marks.freed(changed)

    def _settle_calls(self, now: float) -> None:
        """Calls about held devices: Allocate where its response was lost, and PreStartContainer."""
        self._marks.are_calls_due = False
        if self.book.unanswered:
            self._reallocations.call_due(now)
        if self.pre_starts.required or self.pre_starts.undecided:
            self.pre_starts.call_due(now)

    # -- plugins --------------------------------------------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        return self.allocator.is_held_back

    def connected(
        self, resource_name: str, endpoint: int, options: PluginOptions, now: float, socket: str = ""
    ) -> None:
        """A plugin registered and returned its options. Calls go to the newest connection of a resource. socket: its path."""
        is_new = resource_name not in self.resources
        resource = self._table.add(resource_name)
        lists = resource.connections.answers_again(endpoint)
        resource.connect(endpoint, options, socket, settles_at=now + SETTLE_SECONDS)
        self._preference.added(resource)
        self._marks.publish(resource_name)
        if is_new:
            self._marks.save()
            self._marks.freed([resource_name])
            self._marks.is_attribution_due = resource.is_attributed or self._marks.is_attribution_due
        for listed in lists:
            self.listed(resource_name, endpoint, listed, now)

    def add(self, resource_name: str) -> None:
        """The resource is known from now on, without a plugin."""
        self._table.add(resource_name)
        self._marks.publish(resource_name)

    def listed(self, resource_name: str, endpoint: int, listed: ListedDevices, now: float) -> None:
        """A complete device list was received; without a change nothing is saved, published or retried."""
        resource = self.resources.get(resource_name)
        if resource is None:
            return
        accepted = self.list_limit.accepted(resource, endpoint, listed)
        is_changed = resource.list(endpoint, accepted, now)
        self.list_limit.noted(resource)
        if resource_name in self.book.without_originals:
            self.book.learn_originals(resource)
        if not is_changed:
            return
        if resource.use.holders and resource.presence.is_built_in:
            self._reallocations.forget_outdated(resource)
        self._marks.saved_and_changed([resource_name])
        if resource_name in self._preference.awaited:
            self._marks.freed(self._preference.listed(resource_name))
        self._marks.are_calls_due = True

    def is_list_awaited(self, resource_name: str, endpoint: int) -> bool:
        """Whether the refused list of that connection is to be read again, as there is room for it."""
        resource = self.resources.get(resource_name)
        return resource is not None and resource.connections.is_awaited(endpoint)

    def disconnected(self, resource_name: str, endpoint: int, now: float, *, is_silent: bool = False) -> None:
        """A plugin's stream ended. The end of the last connection makes all devices unhealthy and starts the grace period.

        is_silent: it is open, and the plugin does not answer; `connected` ends that.
        """
        resource = self.resources.get(resource_name)
        if resource is None:
            return
        is_configured = self._table.is_configured(resource)
        is_changed = resource.disconnect(endpoint, now, is_configured=is_configured, is_silent=is_silent)
        self.list_limit.noted(resource)
        # the last list stays known, so no less is kept; but a refused list of an older connection may take its place
        self.list_limit.has_shrunk = True
        if is_changed:
            resource.presence.is_silent = is_silent and resource.presence.state is EndpointState.STOPPED
            self._marks.saved_and_changed([resource_name])

    def configured(self, is_configured: IsConfigured, now: float, returning: Iterable[str] = ()) -> None:
        """What the configuration of built-in plugins names from now on, before they end and begin accordingly.

        The end of one that it does not name is meant, and has no grace period. Devices stay held until their pods end.
        returning: resources whose plugins list within moments, also where another takes their place.
        """
        self._gone(self._table.configured(is_configured, returning, now))

    def displaced(self, resource_names: Collection[str], by: str) -> None:
        """Their place is another name's, "" where there are too many anyway; nothing waits for a grace period."""
        for name in resource_names:
            self.resources[name].displaced(by)
        self._gone(resource_names)

    def _gone(self, resource_names: Collection[str]) -> None:
        for name in resource_names:
            self.list_limit.noted(self.resources[name])
        self._marks.saved_and_changed(resource_names)

    def ranked(self, ranks: Mapping[str, int], awaited: Collection[str], now: float) -> None:
        """Which resource of built-in plugins has priority where two have the same device: that of the lower number.

        awaited: resources whose plugins will list within moments.
        """
        self._marks.are_claims_due = self._preference.ranked(ranks, awaited, now) or self._marks.are_claims_due

    def forget(self, resource_name: str) -> bool:
        """Forget a resource whose plugin is gone, unless a pod holds it or asks for it, or a device of it is cordoned that may be
        offered under another name; whether it is not known any more.

        Without effects: what remains of it are its NodeDevice and its metrics, which end by the same event.
        """
        resource = self.resources.get(resource_name)
        if resource is None:
            return True
        requested = (request.resource_name for pod in self.pods.values() for request in pod.device_requests)
        is_needed = resource.use.holders or resource.identities.claimed() or resource_name in requested
        if resource.presence.state is not EndpointState.GONE or is_needed or resource.may_answer:
            return False
        self.resources.pop(resource_name).forgotten()
        self.list_limit.forgotten(resource_name)
        self._releasing.forget(resource_name)
        for calls in (self._reallocations, self.pre_starts):
            calls.forget_resource(resource_name)
        return True

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """All cordons in the NodeDevice of that UID, by device ID; uid "" where there is none: then the last ones stay.

        Free devices leave at once, held ones when their pod ends. No pod gets under another name what a cordoned device is.
        """
        resource = self.resources.get(resource_name)
        if resource is not None:
            self._table.cordoned(resource, uid, in_spec)

    def cordons_outdated(self, resource_name: str) -> None:
        """They may have changed while nobody watched: nothing of it is allocated before cordoned()."""
        if resource_name in self.resources:
            self._table.cordons_outdated(self.resources[resource_name])

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_synced(self, pods: Iterable[Pod], now: float) -> None:
        """The complete list of this node's pods: a pod that is not in it is gone."""
        pods = tuple(pods)
        uids = {pod.uid for pod in pods}
        self._static_pods.synced(uids)
        present = {pod.uid: pod for pod in map(self._known_pod, pods) if pod is not None}
        for pod in present.values():
            self._take_over(pod)
        # an allocation that was recovered from the API has an unproven static pod under its mirror pod's UID
        over = (self.pods.keys() | self.attribution.without_kubelets(self.book.by_pod)) - present.keys() - uids
        over |= self.allocate_once.pod_uids() - present.keys() - uids - {pod.config_hash for pod in pods}
        for uid in sorted(over):
            self._pod_over(uid, now)
        # what has ended is free before others begin
        for pod in sorted(present.values(), key=lambda pod: not pod.has_ended):
            self._pod_known(pod, now)
        self.attribution.pods_synced(over | (present.keys() - self.pods.keys()))
        self._table.possible_holders_are(omitted_allocations.found(self.resources, self.pods.values(), self.book))
        self.allocate_once.pods_synced(pods)
        self._marks.are_calls_due = True

    def pod_seen(self, pod: Pod, now: float) -> None:
        """A pod bound to this node, new or changed."""
        known = self._known_pod(pod)
        if known is not None:
            self._pod_known(known, now)

    def static_pods_listed(self, found: Iterable[StaticPod], now: float) -> None:
        """The static pods among all sandboxes that the runtime can reach."""
        self._static_pods_proven(self._static_pods.listed(found, self.book.by_pod.keys()), now)

    def static_pod_shown(self, found: StaticPod, now: float) -> None:
        """The runtime has a sandbox of this static pod."""
        self._static_pods_proven(self._static_pods.shown(found), now)

    def static_pod_removed(self, pod_uid: str) -> None:
        """The runtime has removed a sandbox of this static pod."""
        if pod_uid not in self.containers.by_pod:
            self._static_pods.removed(pod_uid)

    def _known_pod(self, pod: Pod) -> Pod | None:
        """The pod under the UID by which the runtime knows it; None for a mirror pod that is not proven to be one.

        Without a runtime there is no proof: there a mirror pod is a pod like any other. Its first annotation stays.
        """
        before = self.pods.get(pod.uid)
        if before is not None:
            is_same = self._waits_for_runtime or before.config_hash == pod.config_hash
            return pod if is_same else replace(pod, config_hash=before.config_hash)
        return self._static_pods.seen(pod) if self._waits_for_runtime else pod

    def _static_pods_proven(self, proven: Iterable[Pod], now: float) -> None:
        for pod in proven:
            self._take_over(pod)
            self._pod_known(pod, now)
            self._marks.are_calls_due = True
            if pod.uid in self.book.by_pod:
                # the next start knows whose devices these are
                self._marks.save()

    def _take_over(self, pod: Pod) -> None:
        """What was recovered from the API for a mirror pod is its static pod's."""
        if pod.api_uid not in self.book.by_pod:
            return
        self.book.rename(pod.api_uid, pod.uid)
        self._reallocations.drop(pod.api_uid)
        if pod.api_uid not in self.book.by_pod:
            self.pre_starts.rename(pod.api_uid, pod.uid)
        self._marks.save()

    def _pod_known(self, pod: Pod, now: float) -> None:
        if pod.has_ended:
            self.pod_gone(pod.uid_in_api, now)
            return
        pod = self._kubelet_requests.without(pod)
        before = self.pods.get(pod.uid)
        if before == pod:
            return
        self.pods[pod.uid] = pod
        self.allocate_once.pod_seen(pod)
        if not pod.device_requests:
            return
        if before is None:
            self._releasing.awaited_by(pod)
            if pod.uid in self.book.by_pod:
                # the namespace and name of a restored allocation's pod are known only now
                self._marks.publish_all({r.resource_name for r in pod.device_requests} & self.resources.keys())
        self._marks.publish_all(self.book.set_held_again(pod.uid))
        own = self.attribution.pod_seen(pod)
        if pod.is_terminating:
            self.allocator.pod_terminating(pod.uid)
        elif own.device_requests:
            self.allocator.pod_seen(own)

    def pod_gone(self, uid: str, now: float) -> None:
        """The API no longer has the object of that UID, or its pod has ended."""
        self._pod_over(self._static_pods.gone(uid), now)

    def _pod_over(self, pod_uid: str, now: float) -> None:
        pod = self.pods.pop(pod_uid, None)
        self._kubelet_requests.forget(pod_uid)
        if pod is not None:
            self._releasing.awaited_by(pod)
        self.attribution.pod_over(pod_uid)
        self.allocator.pod_ended(pod_uid)
        self.pre_starts.forget(pod_uid)
        self.allocate_once.forget(pod_uid)
        if self._waits_for_runtime and (self._may_run(pod_uid) or self.pre_starts.has_orphaned_call(pod_uid)):
            self._releasing.pod_ended(pod_uid, now)
            return
        self._release(pod_uid)
        self.possible_holder_ended(pod_uid)

    def possible_holder_ended(self, pod_uid: str) -> None:
        """An event after which a pod may be gone for good: what it may have held is free, where it was the last such pod."""
        runs = self._waits_for_runtime and (not self.containers.is_synchronized or pod_uid in self.containers.by_pod)
        if not runs and pod_uid not in self.pods:
            self._table.possible_holders_are(omitted_allocations.without(self.resources, pod_uid))

    def kubelet_allocated(self, pod_uid: str, requests: Collection[tuple[str, str]], now: float) -> bool:
        """The kubelet's own device manager has met these requests of a pod, each a container and a resource name.

        It gives the containers their devices itself, so the pod gets none here, and lacks none. Ignored for a resource that a
        plugin serves here, and for what is allocated here. Returns whether it concerns a pod that waits.
        """
        pod = self.pods.get(pod_uid)
        if pod is None or pod_uid in self.allocator.in_progress or not self._kubelet_requests.add(pod, requests):
            return False
        self.allocator.pod_terminating(pod_uid)
        self._pod_known(pod, now)
        return True

    def containers_ended(self, pod_uid: str) -> None:
        """The runtime reported that all containers of a pod that has ended or is gone have ended: its devices are free."""
        if pod_uid in self.book.releasing and not self.pre_starts.has_orphaned_call(pod_uid):
            self._release(pod_uid)

    def containers_changed(self, pod_uid: str = "") -> None:
        """A container runs or has ended: device files that a pod with devices has are known, or are in use no more.

        pod_uid: whose container; "" where the runtime has listed all of its own.
        """
        self._marks.are_claims_due |= not pod_uid or pod_uid in self.book.by_pod

    def publish(self, resource_names: Iterable[str]) -> None:
        """What of the runtime's containers the status of these shows may have changed."""
        self._marks.publish_all(self.resources.keys() & resource_names)

    def save(self) -> None:
        """What the checkpoint has of the runtime's containers has changed."""
        self._marks.save()

    # -- responses of plugins -------------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> None:
        """GetPreferredAllocation's response, empty if the call failed. The devices among them that are free are taken first."""
        self.allocator.preferred(ticket, device_ids, now)

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> None:
        """Allocate succeeded."""
        if ticket in self._reallocations.in_flight:
            self._reallocations.allocated(ticket, response, self.allocator.uncommitted(), now)
        else:
            self.allocator.allocated(ticket, response, now)

    def allocate_failed(self, ticket: int, message: str, now: float) -> None:
        """Allocate failed, timed out or returned an invalid response: release the pod's reservations, retry after a backoff."""
        if ticket in self._reallocations.in_flight:
            self._reallocations.failed(ticket, message, now)
        else:
            self.allocator.allocate_failed(ticket, message, now)

    def pre_started(self, ticket: int) -> None:
        """PreStartContainer succeeded."""
        self.pre_starts.started(ticket)
        self._after_orphaned_call(ticket)

    def pre_start_failed(self, ticket: int, message: str, now: float) -> None:
        """PreStartContainer failed or timed out. The devices stay held; the call is retried after a backoff."""
        self.pre_starts.failed(ticket, message, now)
        self._after_orphaned_call(ticket)

    # -- time ---------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The time of the next tick() that has something to do, monotonic seconds."""
        return self.deadlines.next()

    def tick(self, now: float) -> None:
        """Time has passed: grace periods end, restarts settle, damping of flapping devices ends, failed calls are retried."""
        for resource in self._table.tick(now):
            self.list_limit.noted(resource)
        if waited := self._preference.due(now):
            self._marks.freed(waited)
            self._marks.are_claims_due = True
        self._releasing.tick(now)
        self.allocator.tick(now)
        self._marks.are_calls_due = True

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, known: Checkpoint, now: float) -> None:
        """What was recovered from the API after the checkpoint was lost; Allocate is called again for its allocations."""
        known = self.attribution.recovered(known)
        for name, cordons in known.cordons.items():
            self.cordons.setdefault(name, cordons)
        self._restore(known, now)
        self.allocate_once.checkpoint_lost(self.pods.values())
        self.allocator.is_held_back = False
        self._marks.save_durably()
        self._marks.saved_and_changed(self.resources)
        self._marks.are_calls_due = True

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
            part_sizes={name: r.use.part_sizes for name, r in self.resources.items() if r.use.part_sizes},
            identities={name: found for name, r in self.resources.items() if (found := r.identities.claimed())},
            scopes={name: r.presence.scope for name, r in self.resources.items() if r.presence.scope is not None},
            gone=tuple(name for name, resource in self.resources.items() if name not in registered),
        )

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        """Also one that is not in the API, with the kubelet's name for it."""
        return self.pods.get(pod_uid) or self.attribution.unknown_pods.get(pod_uid)

    def pending(self, resource_name: str) -> list[PendingAllocation]:
        """Pending allocations, failed PreStartContainer calls and lost responses of a resource, by pod UID and container."""
        failed, lost = self.pre_starts.failures, self.allocate_once.lost
        everything = (*self.allocator.pending.values(), *failed.values(), *lost.values())
        found = (pending for pending in everything if pending.resource_name == resource_name)
        return sorted(found, key=lambda pending: (pending.pod_uid, pending.container))

    # -- internals ----------------------------------------------------------------------------------------------------------

    def _restore(self, known: Checkpoint, now: float) -> None:
        self._table.restore(known, now)
        for allocation in known.allocations:
            self.book.restore(allocation)
        for name, identities in known.identities.items():
            if name in self.resources:
                self.resources[name].identities.remember(identities)

    def _after_orphaned_call(self, ticket: int) -> None:
        """A call for an ended pod has returned. Until then its plugin may have been working on the devices."""
        pod_uid = self.pre_starts.orphan_ended(ticket)
        if pod_uid is not None and not self._may_run(pod_uid):
            self.containers_ended(pod_uid)

    def _may_run(self, pod_uid: str) -> bool:
        """Whether a container that holds devices may still have a process."""
        holding = frozenset(allocation.container for allocation in self.book.of_pod(pod_uid))
        return not self.containers.have_ended(pod_uid, holding)

    def _release(self, pod_uid: str) -> None:
        touched = self.book.release(pod_uid)
        if not touched:
            return
        self._reallocations.drop(pod_uid)
        for name in touched:
            self.resources[name].released()
        self._marks.saved_and_changed(touched)
