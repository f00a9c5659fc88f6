"""The kubelet's allocations: this stage replaces the allocator for resources that the kubelet allocates.

The allocations are read from the kubelet. The end of a pod is taken from the API. The kubelet keeps the devices of finished pods
until the next pod requests a device.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, structs
from nodedevice_api.names import DELIVERY_NRI

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.stored_responses import problem, recorded_files
from nodedevice_agent.devicemanager.attribution.attribute import Attributed, KubeletState, attribute, is_elsewhere
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, by_numa
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.resource_table import ResourceTable
from nodedevice_agent.devicemanager.runtime import RuntimeContainers

# responses that the kubelet may not have written yet
_MAX_RECENT = 1024


class Attribution(Struct, eq=False):
    """_pods: all unfinished pods of the node. _containers: of the runtime; they may run with devices that the kubelet did not
    allocate.
    """

    _table: ResourceTable
    _book: AllocationBook
    _pods: Mapping[str, Pod]
    _marks: Marks
    _containers: RuntimeContainers
    # whether the runtime will list these containers, but has not yet
    awaits_runtime: bool = False
    # whether a pod has finished since the kubelet was last read, or meanwhile: its state may have changed
    is_outdated: bool = True
    # allocations left out because the kubelet reports their device for two pods
    conflicts: tuple[Allocation, ...] = ()
    # pods with devices that are not (yet) in the API, with the kubelet's names for them
    unknown_pods: Mapping[str, Pod] = {}
    _state: KubeletState | None = None
    # with the kubelet's UIDs of static pods
    _ended: set[str] = set()
    # the kubelet's UID by the mirror pod's
    _static_uids: Mapping[str, str] = {}
    # by resource name and device IDs: the responses' own device files, as recorded when they were given
    _files: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, str], ...]] = {}

    def restored(self, checkpoint: Checkpoint) -> Checkpoint:
        """Remove the records that the kubelet keeps now: it calls PreStartContainer and knows all allocations."""
        for a in checkpoint.allocations:
            if self._is_kubelets(a.resource_name):
                self._files.setdefault((a.resource_name, a.device_ids), a.files)
        return structs.replace(
            checkpoint,
            pre_starts=tuple(key for key in checkpoint.pre_starts if not self._is_kubelets(key[2])),
            possible_holders={n: uids for n, uids in checkpoint.possible_holders.items() if not self._is_kubelets(n)},
        )

    def recovered(self, known: Checkpoint) -> Checkpoint:
        """Remove the kubelet's allocations from those recovered from the API, which does not show who made one; the resources stay.
        One that the kubelet does not report was made before a move to the kubelet.
        """
        entries = (self._state.entries if self._state is not None else None) or ()
        kubelets = {entry.key for entry in entries}
        ours = [a for a in known.allocations if not self._is_kubelets(a.resource_name)]
        others = (a for a in known.allocations if self._is_kubelets(a.resource_name) and a.key not in kubelets)
        ours += [structs.replace(a, delivery=DELIVERY_NRI) for a in others if not self._is_held_here(a)]
        names = dict.fromkeys(known.registered) | dict.fromkeys(a.resource_name for a in known.allocations)
        self._marks.is_attribution_due = True
        return structs.replace(self.restored(known), allocations=tuple(ours), registered=dict.fromkeys(names, ()))

    def _is_held_here(self, allocation: Allocation) -> bool:
        """Whether the kubelet has allocated one of these devices, or others to the same container."""
        resource = self._table.by_name.get(allocation.resource_name)
        held = resource.use.holders if resource is not None else {}
        return self._book.of(*allocation.key) is not None or not held.keys().isdisjoint(allocation.device_ids)

    def read(self, state: KubeletState) -> None:
        """Set the kubelet's state. If nothing could be read, the last state stays."""
        if state.entries is None and state.rows is None:
            return
        if state.rows is None and self._state is not None:
            # with the last names, entries of pods that are not in the API can still be attributed
            state = structs.replace(state, rows=self._state.rows)
        self._state = state
        if state.entries is not None:
            self._ended &= {entry.pod_uid for entry in state.entries}
        self._marks.is_attribution_due = True

    def answered(self, resource_name: str, device_ids: Iterable[str], response: AllocateResponse) -> None:
        resource, ids = self._table.by_name[resource_name], tuple(sorted(set(device_ids)))
        held = {(a.resource_name, a.device_ids) for a in self._book}
        recent = dict(list(self._files.items())[-_MAX_RECENT:])
        self._files = {key: files for key, files in self._files.items() if key in held or key in recent}
        self._files[resource_name, ids] = recorded_files(resource, ids, response)

    def start_problem(
        self, resource_name: str, device_ids: Iterable[str], decoded: Callable[[Allocation], Allocation]
    ) -> str:
        """Why a container must not start with the kubelet's response for these devices; "" if it may. decoded: decodes one."""
        resource, ids = self._table.by_name.get(resource_name), tuple(sorted(set(device_ids)))
        if resource is None:
            return ""
        kept = next((a for a in self._book.of_resource(resource_name) if a.device_ids == ids), None)
        found = kept or Allocation("", "", resource_name, by_numa(ids, {}), None)
        return problem(structs.replace(decoded(found), files=self._files.get((resource_name, ids), ())), resource)

    def runtime_known(self) -> None:
        """The runtime has listed its containers or stays unreachable, or one of them has ended."""
        self.awaits_runtime = False
        self._marks.is_attribution_due = True

    def runs(self, pod_uid: str) -> bool:
        """Whether containers of this pod may run with devices that the kubelet did not allocate. pod_uid: in the runtime."""
        return self.awaits_runtime or pod_uid in self._containers.by_pod

    def pods_synced(self, over: Collection[str]) -> None:
        """All pods of this node have been listed: names may be known only now. over: UIDs of deleted or finished pods."""
        if self._table.is_attributed is not None:
            self._ended = (self._ended | {*over} | self._static_uids_of(over)) - self._pods.keys()
            self.is_outdated = True
            self._marks.is_attribution_due = True
            self._marks.publish_all(self._resources())

    def pod_seen(self, pod: Pod) -> Pod:
        """A pod is new or has changed. Returns it without the requests that the kubelet meets."""
        if self._table.is_attributed is None:
            return pod
        requests = ((request.container, request.resource_name) for request in pod.device_requests)
        kubelets = {(container, name) for container, name in requests if self._is_kubelets(name)}
        if not kubelets:
            return pod
        self._marks.is_attribution_due = True
        self._marks.publish_all({name for _, name in kubelets} & self._table.by_name.keys())
        return pod.without(kubelets)

    def pod_over(self, pod_uid: str) -> None:
        """The pod has finished, or the API no longer has it."""
        if self._state is None and not self._files:
            return
        is_held = any(self._is_attributed(a) for a in self._book.of_pod(pod_uid))
        entries = (self._state.entries if self._state else None) or ()
        if is_held or any(entry.pod_uid == pod_uid for entry in entries):
            self._ended |= {pod_uid} | self._static_uids_of([pod_uid])
        if is_held:
            self.is_outdated = True
            self._marks.is_attribution_due = True

    def holds_on(self, pod_uid: str) -> bool:
        """Whether a finished pod keeps devices that the kubelet did not allocate."""
        if self._table.is_attributed is None:
            return False
        return any(map(is_elsewhere, self._book.of_pod(pod_uid))) and self.runs(pod_uid)

    def without_kubelets(self, pod_uids: Iterable[str]) -> set[str]:
        """The pods with devices that the kubelet did not report; the kubelet may know pods that the API lacks."""
        if self._state is None:
            return {*pod_uids}
        return {uid for uid in pod_uids if not all(map(self._is_attributed, self._book.of_pod(uid)))}

    def settle(self) -> None:
        self._marks.is_attribution_due = False
        resources = self._resources()
        before = [a for a in self._book if a.resource_name in resources]
        if self._state is None:
            kept = (a for a in before if a.pod_uid not in self._ended or (is_elsewhere(a) and self.runs(a.pod_uid)))
            found = Attributed(tuple(kept), {}, ())
        else:
            found = attribute(self._state, self._pods, self._ended, resources, tuple(before), self.runs)
        self.unknown_pods, self.conflicts = dict(found.unknown_pods), found.conflicts
        self._static_uids = found.static_pods
        now = [self._with_files(allocation) for allocation in found.allocations]
        held, desired = _by_pod(before), _by_pod(now)
        changed = [uid for uid in held | desired if _devices(held.get(uid, ())) != _devices(desired.get(uid, ()))]
        # dropped before any is added: a device may have passed from one pod to another
        dropped = [allocation for uid in changed for allocation in held.get(uid, ())]
        for allocation in dropped:
            self._book.drop(allocation)
        added = [allocation for uid in changed for allocation in desired.get(uid, ())]
        for allocation in sorted(added, key=lambda a: (a.container, a.resource_name)):
            self._book.add(allocation)
        touched = {allocation.resource_name for allocation in (*dropped, *added)}
        if touched:
            for name in touched:
                resources[name].released()
            self._marks.save()
            # a device may have been released, or be held under a name that is not preferred
            self._marks.held(touched)

    def _is_kubelets(self, resource_name: str) -> bool:
        return self._table.is_attributed is not None and self._table.is_attributed(resource_name)

    def _resources(self) -> dict[str, Resource]:
        return {name: resource for name, resource in self._table.by_name.items() if resource.is_attributed}

    def _is_attributed(self, allocation: Allocation) -> bool:
        return self._table.by_name[allocation.resource_name].is_attributed

    def _with_files(self, allocation: Allocation) -> Allocation:
        files = self._files.get((allocation.resource_name, allocation.device_ids), ())
        # copying an allocation with thousands of devices takes milliseconds
        return allocation if allocation.files == files else structs.replace(allocation, files=files)

    def _static_uids_of(self, pod_uids: Iterable[str]) -> set[str]:
        return {self._static_uids[uid] for uid in pod_uids if uid in self._static_uids}


def _by_pod(allocations: Iterable[Allocation]) -> dict[str, list[Allocation]]:
    by_pod: dict[str, list[Allocation]] = {}
    for allocation in allocations:
        by_pod.setdefault(allocation.pod_uid, []).append(allocation)
    return by_pod


def _devices(allocations: Iterable[Allocation]) -> dict[tuple[str, str], tuple[bool, Mapping[int, tuple[str, ...]]]]:
    return {(a.container, a.resource_name): (is_elsewhere(a), a.ids_by_numa) for a in allocations}
