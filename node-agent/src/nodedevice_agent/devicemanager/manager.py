"""The device manager: a state machine over plugins, devices, pods and allocations.

Each public method of the first five groups is an event: it takes `now` (monotonic seconds) if time matters to it, changes its own
subject, marks the consequences and returns nothing. settle() carries these out in stages, and returns the effects for the host.
The host calls it after each event, in the same turn. Reads change nothing, and time passes only through tick(). For any order of
events, no device is held or reserved by two pods, and a committed allocation stays until its pod has ended.

Source: kubelet device manager @ 1.37 (pkg/kubelet/cm/devicemanager), row by row; docs/differences.md lists intended differences.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce, AllocateRetry
from nodedevice_agent.devicemanager.allocation.allocator import Allocator
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls, Reallocations
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.allocation.retries import Retries
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.attribution.stage import Attribution
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.other_holders import OtherHolders
from nodedevice_agent.devicemanager.pod_events import PodEvents
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.releasing import Releasing
from nodedevice_agent.devicemanager.resource_name_limit import Places
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.physical_devices import PhysicalDevices
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.resource_table import SETTLE_SECONDS, ResourceTable
from nodedevice_agent.devicemanager.resources.same_devices import SameDevices
from nodedevice_agent.devicemanager.runtime import RuntimeContainers
from nodedevice_agent.devicemanager.static_pods import StaticPods


class DeviceManager:
    """is_recovering: the checkpoint was lost; nothing is allocated until recovered() restores the allocations.

    waits_for_runtime: a runtime reports when containers have ended; otherwise a pod that the API reports ended has none left.
    waits_for_cordons: nothing of a resource is allocated before its first cordoned(). topology: whether a container's devices must
    be near each other. allocate_retry: by resource name (* for all others) whether a failed Allocate is retried; by default always.
    is_attributed: by resource name, whether the kubelet allocates its devices, which are then attributed to pods; None if it
    allocates none. delivery: of every other resource.
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
        self.table = ResourceTable(
            marks,
            deadlines,
            waits_for_cordons=waits_for_cordons,
            flapping=flapping,
            delivery=delivery,
            is_attributed=is_attributed,
            make_list_limit=make_list_limit,
        )
        self.resources, self.cordons = self.table.by_name, self.table.cordons
        self.book = book = AllocationBook(self.resources)
        self._physical = PhysicalDevices(self.resources, SameDevices(self.resources, self.table.preference))
        # the containers of the runtime; changed by the handler of the runtime's events
        self.containers = RuntimeContainers()
        self.other_holders = OtherHolders(self.resources, book, self.containers)
        self.pods: dict[str, Pod] = {}
        self.places = Places(self.resources, self.pods)
        self.topology = topology or Topology()
        tickets = count(1)
        self.allocate_once = once = AllocateOnce(allocate_retry or {}, book, marks)
        self._reallocations = Reallocations(book, marks, tickets, Retries(deadlines, Reason.ALLOCATE_FAILED))
        self.pre_starts = PreStartCalls(book, marks, tickets, Retries(deadlines, Reason.PRE_START_FAILED))
        pending = Retries[str](deadlines, "pods")
        self.allocator = Allocator(
            book, marks, deadlines, self.topology, tickets, self.pre_starts, once, pending, is_recovering
        )
        self.attribution = Attribution(self.table, book, self.pods, marks, self.containers)
        reporting = self.containers if waits_for_runtime else None
        self.releasing = Releasing(book, marks, deadlines, reporting, self._reallocations, self.pre_starts)
        self._static_pods = StaticPods(checkpoint.static_pods if checkpoint is not None else ())
        parts = self.allocator, self.attribution, self.releasing, once, self._reallocations, self.pre_starts
        self.pod_events = PodEvents(self.pods, self._static_pods, reporting, self.table, book, marks, *parts)
        if checkpoint is not None:
            checkpoint = self.attribution.restored(checkpoint)
            self.cordons.update(checkpoint.cordons)
            self._restore(checkpoint, now)
            self.pre_starts.require(key for key in checkpoint.pre_starts if book.of(*key) is not None)
            once.restore(checkpoint.allocate_calls)
            if waits_for_runtime:
                self.containers.restore(checkpoint.unlisted, now)

    # -- after each event -------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> list[Effect]:
        """Carry out the consequences of the events since the last call: limits, claims of devices, attribution, allocation, due
        calls. Returns the effects, each once, writes to disk first. A stage without a mark costs nothing.
        """
        marks, allocator = self._marks, self.allocator
        if self.table.list_limit.has_shrunk:
            self.table.list_limit.settle(marks)
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
        """Decide which use of a device counts if several resources list it, and update the devices that the others hold back."""
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
        """Make due calls for held devices: Allocate after a lost response, and PreStartContainer."""
        self._marks.are_calls_due = False
        if self.book.unanswered:
            self._reallocations.call_due(now, self.allocate_once, self.pods)
        if self.pre_starts.required or self.pre_starts.undecided:
            self.pre_starts.call_due(now)

    # -- plugins --------------------------------------------------------------------------------------------------------

    @property
    def is_recovering(self) -> bool:
        return self.allocator.is_held_back

    @property
    def are_devices_compared(self) -> bool:
        """Whether a plugin has named physical devices or given identities, also before a restart."""
        return self._marks.are_devices_compared

    def connected(
        self, resource_name: str, endpoint: int, options: PluginOptions, now: float, socket: str = ""
    ) -> None:
        """A plugin registered and returned its options. Calls go to the newest connection of a resource. socket: its path."""
        is_new = resource_name not in self.resources
        resource = self.table.add(resource_name)
        lists = resource.connections.answers_again(endpoint)
        resource.connect(endpoint, options, socket, settles_at=now + SETTLE_SECONDS)
        self.table.preference.added(resource)
        self._marks.publish(resource_name)
        if is_new:
            self._marks.save()
            self._marks.freed([resource_name])
            self._marks.is_attribution_due = resource.is_attributed or self._marks.is_attribution_due
        for listed in lists:
            self.listed(resource_name, endpoint, listed, now)

    def add(self, resource_name: str) -> None:
        """Add a resource without a plugin."""
        self.table.add(resource_name)
        self._marks.publish(resource_name)

    def listed(self, resource_name: str, endpoint: int, listed: ListedDevices, now: float) -> None:
        """A complete device list was received; without a change nothing is saved, published or retried."""
        resource = self.resources.get(resource_name)
        if resource is None:
            return
        is_changed = self.table.listed(resource, endpoint, listed, now)
        if resource_name in self.book.without_originals:
            self.book.learn_originals(resource)
        if is_changed and resource.use.holders and resource.presence.is_built_in:
            self._reallocations.forget_outdated(resource)

    def forget(self, resource_name: str) -> None:
        """Forget a resource whose plugin is gone.

        It stays while a pod holds or requests it, or while a cordoned device of it may be offered under another name.
        """
        resource = self.resources.get(resource_name)
        if resource is None:
            return
        requested = (request.resource_name for pod in self.pods.values() for request in pod.device_requests)
        is_needed = resource.use.holders or resource.identities.claimed() or resource_name in requested
        if resource.presence.state is not EndpointState.GONE or is_needed or resource.may_answer:
            return
        self.resources.pop(resource_name).forgotten()
        self.table.list_limit.forgotten(resource_name)
        self.releasing.forget(resource_name)
        for calls in (self._reallocations, self.pre_starts):
            calls.forget_resource(resource_name)

    def containers_changed(self, pod_uid: str = "") -> None:
        """The device files of a pod's containers, or of all ("" after the runtime has listed them), may be in use, or no more."""
        if not pod_uid or pod_uid in self.book.by_pod:
            self._marks.claims()

    def publish(self, resource_names: Iterable[str]) -> None:
        """The status of these resources may have changed with the runtime's containers."""
        self._marks.publish_all(self.resources.keys() & resource_names)

    def save(self) -> None:
        """The runtime's containers in the checkpoint have changed."""
        self._marks.save()

    # -- responses of plugins -------------------------------------------------------------------------------------------

    def preferred(self, ticket: int, device_ids: Iterable[str], now: float) -> None:
        """GetPreferredAllocation's response, empty if the call failed. The devices among them that are free are taken first."""
        self.allocator.preferred(ticket, device_ids, now)

    def allocated(self, ticket: int, response: AllocateResponse, now: float) -> None:
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
        self.pre_starts.started(ticket)
        self.releasing.call_ended(ticket)

    def pre_start_failed(self, ticket: int, message: str, now: float) -> None:
        """PreStartContainer failed or timed out. The devices stay held; the call is retried after a backoff."""
        self.pre_starts.failed(ticket, message, now)
        self.releasing.call_ended(ticket)

    # -- time ---------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The time of the next tick() with work to do, monotonic seconds."""
        return self.deadlines.next()

    def tick(self, now: float) -> None:
        """Time has passed: grace periods end, restarts settle, damping of flapping devices ends, failed calls are retried."""
        self.table.tick(now)
        self.releasing.tick(now)
        self.allocator.tick(now)
        self._marks.are_calls_due = True

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, known: Checkpoint, now: float) -> None:
        """Restore the state recovered from the API after the checkpoint was lost; Allocate is called again for its allocations."""
        known = self.attribution.recovered(known)
        for name, cordons in known.cordons.items():
            self.cordons[name] = self.cordons[name].after(cordons) if name in self.cordons else cordons
        self._restore(known, now)
        for name in known.cordons:
            if name in self.resources:
                # its plugin registered before the recovery
                self.resources[name].cordon(self.cordons[name].device_ids)
        self.allocate_once.checkpoint_lost(self.pods.values())
        self.allocator.is_held_back = False
        self._marks.save_durably()
        self._marks.saved_and_changed(self.resources)
        self._marks.are_calls_due = True

    def checkpoint(self) -> Checkpoint:
        """The state that must survive a restart. Includes every known resource, except Gone ones without allocations."""
        # on most nodes most of these are empty
        registered, once, resources = self.table.registered(), self.allocate_once, self.resources
        calls = once.keys() if once.is_lost or once.calls else ()
        compared = [(n, r) for n, r in resources.items() if r.listed.has_identities or r.identities.past]
        pod_uids = self.book.by_pod.keys() | {key[0] for key in calls}
        return Checkpoint(
            tuple(self.book) if self.book.by_pod else (),
            registered,
            pre_starts=tuple(self.pre_starts.required),
            unlisted=self.containers.unlisted() if self.containers.doubtful else (),
            static_pods=self._static_pods.of(pod_uids) if self._static_pods.known and pod_uids else (),
            allocate_calls=calls,
            cordons=dict(self.cordons),
            possible_holders={n: tuple(sorted(uids)) for n, r in resources.items() if (uids := r.use.possible_holders)},
            part_sizes={n: sizes for n, r in resources.items() if (sizes := r.use.part_sizes)},
            identities={n: claimed for n, r in compared if (claimed := r.identities.claimed())},
            scopes={n: scope for n, r in resources.items() if (scope := r.presence.scope) is not None},
            gone=tuple(n for n in resources if n not in registered),
        )

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        """The pod; for one that is not in the API, with the kubelet's name for it."""
        return self.pods.get(pod_uid) or self.attribution.unknown_pods.get(pod_uid)

    def pending(self, resource_name: str) -> list[PendingAllocation]:
        """Pending allocations, failed PreStartContainer calls and lost responses of a resource, by pod UID and container."""
        failed, lost = self.pre_starts.failures, self.allocate_once.lost if self.allocate_once.refused else {}
        everything = (*self.allocator.pending.values(), *failed.values(), *lost.values())
        of_resource = [pending for pending in everything if pending.resource_name == resource_name]
        return sorted(of_resource, key=lambda pending: (pending.pod_uid, pending.container))

    # -- internals ----------------------------------------------------------------------------------------------------------

    def _restore(self, known: Checkpoint, now: float) -> None:
        self.table.restore(known, now)
        for allocation in known.allocations:
            self.book.restore(allocation)
        for name, identities in known.identities.items():
            if name in self.resources:
                self.resources[name].identities.remember(identities)
                self._marks.are_devices_compared = True
