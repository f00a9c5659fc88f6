"""The device manager of a node whose kubelet is the allocator: the same plugins, devices, numbers and cordons, and no admission.

It gives nothing out: a pod that comes is remembered, and what it holds is whatever the kubelet says that it holds. A pod's end
is the API's word, because the kubelet keeps what ended pods held until the next pod asks for a device.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.effects import Effect, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resource import PluginOptions
from nodedevice_agent.devicemanager.state import Checkpoint
from nodedevice_agent.kubelet.attribution import Attribution, Holdings, attribute


class Mirror(DeviceManager):
    """A DeviceManager whose allocations are told to it by mirrored().

    topology: by which NUMA nodes the kubelet is advised; that is not admission, so nothing is refused for it.
    """

    def __init__(
        self,
        now: float,
        checkpoint: Checkpoint | None = None,
        *,
        is_recovering: bool = False,
        topology: Topology | None = None,
        flapping: FlapDampingLimits | None = None,
    ) -> None:
        # whoever owed a call of PreStartContainer before, the kubelet makes those calls now
        restored = None if checkpoint is None else replace(checkpoint, pre_starts=())
        super().__init__(now, restored, is_recovering=is_recovering, waits_for_cordons=True, flapping=flapping)
        self.topology = topology or Topology()
        # whether a pod has come to its end since the kubelet was last asked, which may have changed what it would say
        self.is_outdated = True
        # what the kubelet says two pods hold at once, and only one is shown with
        self.disputed: tuple[Allocation, ...] = ()
        self._holdings: Holdings | None = None
        self._ended: set[str] = set()
        self._strangers: dict[str, Pod] = {}

    # -- the kubelet ------------------------------------------------------------------------------------------------------

    def being_asked(self) -> None:
        """The kubelet is asked now; the end of a pod that comes before its answer makes that answer outdated again."""
        self.is_outdated = False

    def mirrored(self, holdings: Holdings, now: float) -> list[Effect]:
        """What the kubelet says now. Where it says nothing at all, what it said before still holds."""
        if holdings.entries is None and holdings.rows is None:
            return []
        if holdings.rows is None and self._holdings is not None:
            # names that were told before: by them entries of pods that the API does not show are still told apart
            holdings = replace(holdings, rows=self._holdings.rows)
        self._holdings = holdings
        if holdings.entries is not None:
            self._ended &= {entry.pod_uid for entry in holdings.entries}
        return self._attribute()

    # -- plugins ------------------------------------------------------------------------------------------------------

    def connected(self, resource_name: str, endpoint: int, options: PluginOptions, now: float) -> list[Effect]:
        """A plugin registered; where its resource is new here, the kubelet may have known it before."""
        is_new = resource_name not in self.resources
        effects = super().connected(resource_name, endpoint, options, now)
        return effects + self._attribute() if is_new else effects

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pods_synced(self, pods: Iterable[Pod], now: float) -> list[Effect]:
        """The complete list of this node's pods. Everything is published again: their names may be known only now."""
        found = {pod.uid: pod for pod in pods}
        earlier = self._pods.keys() if self._holdings else self._pods.keys() | self.book.pod_uids()
        gone = earlier - found.keys()
        self._pods = {uid: pod for uid, pod in found.items() if not pod.has_ended}
        self._ended = (self._ended | gone | found.keys()) - self._pods.keys()
        self.is_outdated = True
        return self._attribute() + [Publish(name) for name in sorted(self.resources)]

    def pod_seen(self, pod: Pod, now: float) -> list[Effect]:
        """A pod bound to this node, new or changed."""
        if pod.has_ended:
            return self._is_over(pod.uid)
        if self._pods.get(pod.uid) == pod:
            return []
        self._pods[pod.uid] = pod
        if not pod.device_requests:
            return []
        known = {need.resource_name for need in pod.device_requests} & self.resources.keys()
        return self._attribute() + [Publish(name) for name in sorted(known)]

    def pod_gone(self, pod_uid: str, now: float) -> list[Effect]:
        """The API no longer has the pod."""
        return self._is_over(pod_uid)

    # -- restart ----------------------------------------------------------------------------------------------------------

    def recovered(self, known: Checkpoint, now: float) -> list[Effect]:
        """What the API knew, after the checkpoint was lost: the resources only, as the kubelet knows who holds what."""
        names = dict.fromkeys(known.registered) | dict.fromkeys(a.resource_name for a in known.allocations)
        return super().recovered(Checkpoint(registered=dict.fromkeys(names, ())), now) + self._attribute()

    # -- reads ------------------------------------------------------------------------------------------------------------

    def pod(self, pod_uid: str) -> Pod | None:
        """Also one that the API does not show, named as the kubelet names it."""
        return super().pod(pod_uid) or self._strangers.get(pod_uid)

    # -- how it is done -----------------------------------------------------------------------------------------------------

    def _is_over(self, pod_uid: str) -> list[Effect]:
        self._pods.pop(pod_uid, None)
        entries = (self._holdings.entries if self._holdings else None) or ()
        if pod_uid in self.book.pod_uids() or any(entry.pod_uid == pod_uid for entry in entries):
            self._ended.add(pod_uid)
        if pod_uid not in self.book.pod_uids():
            return []
        self.is_outdated = True
        return self._attribute()

    def _attribute(self) -> list[Effect]:
        """Bring the book to what the kubelet and the API say together."""
        if self._holdings is None:
            going_on = tuple(a for a in self.book if a.pod_uid not in self._ended)
            return self._enter(Attribution(going_on, {}, ()))
        return self._enter(attribute(self._holdings, self._pods, self._ended, self.resources, tuple(self.book)))

    def _enter(self, found: Attribution) -> list[Effect]:
        self._strangers, self.disputed = dict(found.strangers), found.disputed
        wanted: dict[str, list[Allocation]] = {}
        for allocation in found.allocations:
            wanted.setdefault(allocation.pod_uid, []).append(allocation)
        changed = [
            uid
            for uid in self.book.pod_uids() | wanted.keys()
            if not _are_same(self.book.of_pod(uid), wanted.get(uid, ()))
        ]
        touched: set[str] = set()
        # all are taken out before any is entered: a device may have passed from one pod to another
        for uid in changed:
            touched |= self.book.release(uid)
        for uid in changed:
            for allocation in sorted(wanted.get(uid, ()), key=lambda a: (a.container, a.resource_name)):
                self.book.add(allocation)
                touched.add(allocation.resource_name)
        if not changed:
            return []
        return [SaveCheckpoint(durable=False), *(Publish(name) for name in sorted(touched))]


def _are_same(held: Iterable[Allocation], wanted: Collection[Allocation]) -> bool:
    return {_key(a): a.ids_by_numa for a in held} == {_key(a): a.ids_by_numa for a in wanted}


def _key(allocation: Allocation) -> tuple[str, str]:
    return allocation.container, allocation.resource_name
