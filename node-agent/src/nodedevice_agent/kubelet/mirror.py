"""The device manager of a node whose kubelet allocates: the same plugins, devices, numbers and cordons, without allocation.

Pods are remembered, and their allocations are read from the kubelet. The end of a pod is taken from the API, because the kubelet
keeps the devices of finished pods until the next pod requests a device.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from msgspec import structs

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, by_numa
from nodedevice_agent.devicemanager.allocation.answers import problem, recorded_files
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.effects import Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.kubelet.attribution import Attribution, KubeletState, attribute

# responses that the kubelet may not have written yet
_MAX_RECENT = 1024


class Mirror(DeviceManager):
    """A DeviceManager whose allocations come from the kubelet, by mirrored().

    topology: the NUMA nodes by which the kubelet is given preferred devices; no pod is refused for it.
    """

    is_allocating = False

    def __init__(
        self,
        now: float,
        checkpoint: Checkpoint | None = None,
        *,
        is_recovering: bool = False,
        topology: Topology | None = None,
        flapping: FlapDampingLimits | None = None,
    ) -> None:
        # the kubelet calls PreStartContainer now, and knows all allocations
        restored = None if checkpoint is None else structs.replace(checkpoint, pre_starts=(), possible_holders={})
        super().__init__(now, restored, is_recovering=is_recovering, waits_for_cordons=True, flapping=flapping)
        self.topology = topology or Topology()
        # whether a pod has finished since the kubelet was read last, or while it was: its state may be another
        self.is_outdated = True
        # allocations left out because the kubelet reports their device for two pods
        self.conflicts: tuple[Allocation, ...] = ()
        self._state: KubeletState | None = None
        # with the kubelet's UIDs of static pods
        self._ended: set[str] = set()
        # the kubelet's UID by the mirror pod's
        self._static_uids: Mapping[str, str] = {}
        self._unknown_pods: dict[str, Pod] = {}
        # by resource name and device IDs: the responses' own device files, as recorded when they were given
        self._files = {(a.resource_name, a.device_ids): a.files for a in checkpoint.allocations} if checkpoint else {}

    # -- the kubelet ------------------------------------------------------------------------------------------------------

    def mirrored(self, state: KubeletState, now: float) -> list[Effect]:
        """The kubelet's state now. Where nothing could be read, the last state stays."""
        if state.entries is None and state.rows is None:
            return []
        if state.rows is None and self._state is not None:
            # with the last names, entries of pods that are not in the API can still be attributed
            state = structs.replace(state, rows=self._state.rows)
        self._state = state
        if state.entries is not None:
            self._ended &= {entry.pod_uid for entry in state.entries}
        return self._attribute()

    def answered(self, resource_name: str, device_ids: Iterable[str], response: AllocateResponse) -> None:
        """A plugin has responded to the kubelet's Allocate."""
        resource, ids = self.resources[resource_name], tuple(sorted(set(device_ids)))
        held = {(a.resource_name, a.device_ids) for a in self.book}
        recent = dict(list(self._files.items())[-_MAX_RECENT:])
        self._files = {key: files for key, files in self._files.items() if key in held or key in recent}
        self._files[resource_name, ids] = recorded_files(resource, ids, response)

    def start_problem(
        self, resource_name: str, device_ids: Iterable[str], decoded: Callable[[Allocation], Allocation]
    ) -> str:
        """Why no container may start with the response that the kubelet has for these devices; empty where it may.

        decoded: decodes the response of an allocation.
        """
        resource, ids = self.resources.get(resource_name), tuple(sorted(set(device_ids)))
        if resource is None:
            return ""
        kept = next((a for a in self.book.of_resource(resource_name) if a.device_ids == ids), None)
        found = kept or Allocation("", "", resource_name, by_numa(ids, {}), None)
        return problem(replace(decoded(found), files=self._files.get((resource_name, ids), ())), resource)

    # -- plugins ------------------------------------------------------------------------------------------------------

    def connected(
        self, resource_name: str, endpoint: int, options: PluginOptions, now: float, socket: str = ""
    ) -> list[Effect]:
        """A plugin registered; the kubelet may already know a resource that is new here."""
        is_new = resource_name not in self.resources
        effects = super().connected(resource_name, endpoint, options, now, socket)
        return effects + self._attribute() if is_new else effects

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_synced(self, pods: Iterable[Pod], now: float) -> list[Effect]:
        """The complete list of this node's pods. Every resource is published again: pod names may be known only now."""
        found = {pod.uid: self._with_first_hash(pod) for pod in pods}
        earlier = self.pods.keys() if self._state else self.pods.keys() | self.book.by_pod.keys()
        gone = earlier - found.keys()
        # the same object, which others read
        self.pods.clear()
        self.pods.update({uid: pod for uid, pod in found.items() if not pod.has_ended})
        over = gone | (found.keys() - self.pods.keys())
        self._ended = (self._ended | over | self._static_uids_of(over)) - self.pods.keys()
        self.is_outdated = True
        return self._attribute() + [Publish(name) for name in sorted(self.resources)]

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod bound to this node, new or changed."""
        if pod.has_ended:
            return self.pod_gone(pod.uid, now)
        pod = self._with_first_hash(pod)
        if self.pods.get(pod.uid) == pod:
            return []
        self.pods[pod.uid] = pod
        if not pod.device_requests:
            return []
        known = {request.resource_name for request in pod.device_requests} & self.resources.keys()
        return self._attribute() + [Publish(name) for name in sorted(known)]

    def pod_gone(self, pod_uid: str, now: float) -> list[Effect]:
        """The pod has finished, or the API no longer has it."""
        self.pods.pop(pod_uid, None)
        entries = (self._state.entries if self._state else None) or ()
        if pod_uid in self.book.by_pod or any(entry.pod_uid == pod_uid for entry in entries):
            self._ended |= {pod_uid} | self._static_uids_of([pod_uid])
        if pod_uid not in self.book.by_pod:
            return []
        self.is_outdated = True
        return self._attribute()

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, known: Checkpoint, now: float) -> list[Effect]:
        """After a lost checkpoint, only the resources are taken from the API: the kubelet knows the allocations."""
        names = dict.fromkeys(known.registered) | dict.fromkeys(a.resource_name for a in known.allocations)
        return (
            super().recovered(Checkpoint(registered=dict.fromkeys(names, ()), cordons=known.cordons), now)
            + self._attribute()
        )

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        """Also a pod that is not in the API, with the kubelet's name for it."""
        return super().pod(pod_uid) or self._unknown_pods.get(pod_uid)

    # -- internals -----------------------------------------------------------------------------------------------------

    def _with_first_hash(self, pod: Pod) -> Pod:
        before = self.pods.get(pod.uid)
        return pod if before is None else replace(pod, config_hash=before.config_hash)

    def _static_uids_of(self, pod_uids: Iterable[str]) -> set[str]:
        return {self._static_uids[uid] for uid in pod_uids if uid in self._static_uids}

    def _pending_calls(self, now: float) -> list[Effect]:
        """None: the kubelet has the plugins' responses, and calls PreStartContainer itself."""
        return []

    def _attribute(self) -> list[Effect]:
        """Update the book from the kubelet's state and the API's pods."""
        if self._state is None:
            found = Attribution(tuple(a for a in self.book if a.pod_uid not in self._ended), {}, ())
        else:
            found = attribute(self._state, self.pods, self._ended, self.resources, tuple(self.book))
        self._unknown_pods, self.conflicts = dict(found.unknown_pods), found.conflicts
        self._static_uids = found.static_pods
        desired: dict[str, list[Allocation]] = {}
        for allocation in found.allocations:
            files = self._files.get((allocation.resource_name, allocation.device_ids), ())
            # of an allocation with thousands of devices a copy takes milliseconds
            found_with_files = allocation if allocation.files == files else replace(allocation, files=files)
            desired.setdefault(allocation.pod_uid, []).append(found_with_files)
        changed = [
            uid
            for uid in self.book.by_pod.keys() | desired.keys()
            if _by_container(self.book.of_pod(uid)) != _by_container(desired.get(uid, ()))
        ]
        touched: set[str] = set()
        # released before any is added: a device may have passed from one pod to another
        for uid in changed:
            touched |= self.book.release(uid)
        for uid in changed:
            for allocation in sorted(desired.get(uid, ()), key=lambda a: (a.container, a.resource_name)):
                self.book.add(allocation)
                touched.add(allocation.resource_name)
        if not changed:
            return []
        for name in touched:
            self.resources[name].released()
        effects: list[Effect] = [SaveCheckpoint(durable=False), *(Publish(name) for name in sorted(touched))]
        # a device may have been released, or be held under a name that is not preferred
        return effects + self._published_with(effects)


def _by_container(allocations: Iterable[Allocation]) -> dict[tuple[str, str], Mapping[int, tuple[str, ...]]]:
    return {(a.container, a.resource_name): a.ids_by_numa for a in allocations}
