"""Updates devices after events of pods from the API, the runtime and the kubelet.

A static pod has one UID in the API and another one in the runtime; here the runtime's UID is used, see static_pods.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct, structs

from nodedevice_agent.devicemanager import omitted_allocations
from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce
from nodedevice_agent.devicemanager.allocation.allocator import Allocator
from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls, Reallocations
from nodedevice_agent.devicemanager.attribution.stage import Attribution
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.releasing import Releasing
from nodedevice_agent.devicemanager.resources.resource_table import ResourceTable
from nodedevice_agent.devicemanager.runtime import RuntimeContainers
from nodedevice_agent.devicemanager.static_pods import StaticPod, StaticPods


class PodEvents(Struct, eq=False):
    """pods: every unfinished pod of this node, by UID, without unproven mirror pods; kept here. containers: None if no runtime
    reports them; then a mirror pod is handled like any other pod.
    """

    pods: dict[str, Pod]
    static_pods: StaticPods
    containers: RuntimeContainers | None
    table: ResourceTable
    book: AllocationBook
    marks: Marks
    allocator: Allocator
    attribution: Attribution
    releasing: Releasing
    once: AllocateOnce
    reallocations: Reallocations
    pre_starts: PreStartCalls
    # by pod UID: container and resource name of requests that the kubelet's own device manager has met; the pod lacks them
    _met: dict[str, frozenset[tuple[str, str]]] = {}

    def synced(self, pods: Iterable[Pod], now: float) -> None:
        """The complete list of this node's pods: a pod that is not in it is gone."""
        pods = tuple(pods)
        uids = {pod.uid for pod in pods}
        self.static_pods.synced(uids)
        present = {pod.uid: pod for pod in map(self._known, pods) if pod is not None}
        for pod in present.values():
            self._take_over(pod)
        # an allocation that was recovered from the API has an unproven static pod under its mirror pod's UID
        over = (self.pods.keys() | self.attribution.without_kubelets(self.book.by_pod)) - present.keys() - uids
        over |= self.once.pod_uids() - present.keys() - uids - {pod.config_hash for pod in pods}
        for uid in sorted(over):
            self._over(uid, now)
        # release devices of finished pods before others begin
        for pod in sorted(present.values(), key=lambda pod: not pod.has_ended):
            self._seen(pod, now)
        self.attribution.pods_synced(over | (present.keys() - self.pods.keys()))
        holders = omitted_allocations.found(self.table.by_name, self.pods.values(), self.book)
        self.table.possible_holders_are(holders)
        self.once.pods_synced(pods)
        self.marks.are_calls_due = True

    def seen(self, pod: Pod, now: float) -> None:
        """A pod bound to this node is new or has changed."""
        known = self._known(pod)
        if known is not None:
            self._take_over(known)
            self._seen(known, now)

    def gone(self, uid: str, now: float) -> None:
        """The API no longer has the object of that UID, or its pod has ended."""
        self._over(self.static_pods.gone(uid), now)

    def _known(self, pod: Pod) -> Pod | None:
        """The pod with its UID in the runtime, if there is one; None for an unproven mirror pod. The first annotation stays."""
        before = self.pods.get(pod.uid)
        if before is not None:
            is_same = self.containers is not None or before.config_hash == pod.config_hash
            return pod if is_same else structs.replace(pod, config_hash=before.config_hash)
        return pod if self.containers is None else self.static_pods.seen(pod)

    def _seen(self, pod: Pod, now: float) -> None:
        if pod.has_ended:
            self.gone(pod.uid_in_api, now)
            return
        if pod.uid in self._met:
            pod = pod.without(self._met[pod.uid])
        before = self.pods.get(pod.uid)
        if before == pod:
            return
        self.pods[pod.uid] = pod
        self.once.pod_seen(pod)
        if not pod.device_requests:
            return
        if before is None:
            self.releasing.awaited_by(pod)
            if pod.uid in self.book.by_pod:
                # the namespace and name of a restored allocation's pod are known only now
                self.marks.publish_all({r.resource_name for r in pod.device_requests} & self.table.by_name.keys())
        self.marks.publish_all(self.book.set_held_again(pod.uid))
        own = self.attribution.pod_seen(pod)
        if pod.is_terminating:
            self.allocator.pod_terminating(pod.uid)
        elif own.device_requests:
            self.allocator.pod_seen(own)

    def _over(self, pod_uid: str, now: float) -> None:
        pod = self.pods.pop(pod_uid, None)
        self._met.pop(pod_uid, None)
        if pod is not None:
            self.releasing.awaited_by(pod)
        self.attribution.pod_over(pod_uid)
        self.allocator.pod_ended(pod_uid)
        self.pre_starts.forget(pod_uid)
        self.once.forget(pod_uid)
        static = self.static_pods.mirrored_by(pod) if pod is not None else ""
        if static and self.attribution.runs(static):
            self.book.rename(pod_uid, static)
            pod_uid = static
        if self.releasing.pod_ended(pod_uid, now, is_kept=self.attribution.holds_on(pod_uid)):
            self.possible_holder_ended(pod_uid)

    def static_pods_listed(self, found: Iterable[StaticPod], now: float) -> None:
        """The static pods among all sandboxes that the runtime can reach."""
        self._proven(self.static_pods.listed(found, self.book.by_pod.keys()), now)

    def static_pod_shown(self, found: StaticPod, now: float) -> None:
        """The runtime has a sandbox of it."""
        self._proven(self.static_pods.shown(found), now)

    def static_pod_removed(self, pod_uid: str) -> None:
        """The runtime has removed a sandbox of it."""
        if self.containers is None or pod_uid not in self.containers.by_pod:
            self.static_pods.removed(pod_uid)

    def _proven(self, proven: Iterable[Pod], now: float) -> None:
        for pod in proven:
            self._take_over(pod)
            self._seen(pod, now)
            self.marks.are_calls_due = True
            if pod.uid in self.book.by_pod:
                # the next start knows whose devices these are
                self.marks.save()

    def _take_over(self, pod: Pod) -> None:
        """Move a static pod's allocations from its other UID: recovered from the API, or made by another delivery."""
        other = pod.api_uid or self.static_pods.mirrored_by(pod)
        if other not in self.book.by_pod:
            return
        self.book.rename(other, pod.uid)
        self.reallocations.drop(other)
        if other not in self.book.by_pod:
            self.pre_starts.rename(other, pod.uid)
        self.marks.save()

    def possible_holder_ended(self, pod_uid: str) -> None:
        """Free the devices of a possible holder after an event that may have ended it, if it was the last one."""
        running = self.containers
        may_run = running is not None and (not running.is_synchronized or pod_uid in running.by_pod)
        if not may_run and pod_uid not in self.pods:
            self.table.possible_holders_are(omitted_allocations.without(self.table.by_name, pod_uid))

    def kubelet_allocated(self, pod_uid: str, requests: Collection[tuple[str, str]], now: float) -> None:
        """Record requests of a pod that the kubelet's own device manager has met, each a container and a resource name: the pod is
        neither served here nor pending for these. Ignored for a resource that a plugin serves here, and for allocations made here.
        """
        pod = self.pods.get(pod_uid)
        if pod is None or pod_uid in self.allocator.in_progress:
            return
        asked = {(request.container, request.resource_name) for request in pod.device_requests}
        met = {r for r in asked.intersection(requests) if self.table.is_disconnected(r[1])}
        met = {r for r in met if self.book.of(pod_uid, *r) is None}
        if not met:
            return
        self._met[pod_uid] = self._met.get(pod_uid, frozenset()) | met
        self.allocator.pod_terminating(pod_uid)
        self._seen(pod, now)
