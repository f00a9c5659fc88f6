"""Attributes devices to pods where the kubelet allocates: from its checkpoint, its pod resources and the API's pods.

The checkpoint has pod UIDs, and keeps finished pods until the next pod requests a device. Pod resources have pod names, and omit
init containers that end. The API reports which pods have finished. A pod that is in pod resources and not (yet) in the API holds
its devices. Without a readable checkpoint the names are used alone. A static pod's UID is the kubelet's own; its mirror pod is the
one with that UID in its annotation and with the name that the kubelet has for it.
Source: kubelet pkg/kubelet/cm/devicemanager (checkpoint) and pkg/kubelet/apis/podresources @ 1.37.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field, structs
from nodedevice_api.names import DELIVERY_KUBELET

from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, by_numa, each_device_once
from nodedevice_agent.devicemanager.resources.resource import Resource

# namespace and name
PodName = tuple[str, str]


class PodResourcesRow(Struct, frozen=True, gc=False):
    """The devices of one container and resource. device_ids: sorted, each once."""

    namespace: str
    name: str
    container: str
    resource_name: str
    device_ids: tuple[str, ...]


class KubeletState(Struct, frozen=True):
    """The kubelet's checkpoint and pod resources. None: unreadable, or no response."""

    entries: tuple[Allocation, ...] | None = None
    rows: tuple[PodResourcesRow, ...] | None = None


class Attributed(Struct, frozen=True):
    """allocations: each device belongs to one pod. unknown_pods, conflicts: see Attribution. static_pods: the kubelet's UID of each
    static pod with devices, by the UID of its mirror pod, under which its allocations are.
    """

    allocations: tuple[Allocation, ...]
    unknown_pods: Mapping[str, Pod]
    conflicts: tuple[Allocation, ...]
    static_pods: Mapping[str, str] = field(default_factory=dict)


# pod UID, container, resource name, device IDs
Entries = frozenset[tuple[str, str, str, tuple[str, ...]]]


def unordered(entries: Iterable[Allocation] | None) -> Entries | None:
    """To compare two checkpoints: the kubelet writes its maps in another order each time."""
    if entries is None:
        return None
    return frozenset((a.pod_uid, a.container, a.resource_name, a.device_ids) for a in entries)


def changed_pods(
    before: Iterable[Allocation], entries: Iterable[Allocation], pods: Mapping[str, Pod]
) -> frozenset[PodName] | None:
    """Pods whose devices changed between two checkpoints, including possible mirror pods. None if a name is missing. A pod that has
    left the checkpoint has ended.
    """
    known = {(a.pod_uid, a.container, a.resource_name, a.device_ids) for a in before}
    uids = {a.pod_uid for a in entries if (a.pod_uid, a.container, a.resource_name, a.device_ids) not in known}
    names = [(uid, (pod.namespace, pod.name)) for pod in pods.values() for uid in (pod.uid, pod.config_hash)]
    if uids - {uid for uid, _ in names}:
        return None
    return frozenset(name for uid, name in names if uid in uids)


def attribute(
    state: KubeletState,
    pods: Mapping[str, Pod],
    ended: Collection[str],
    resources: Mapping[str, Resource],
    before: Collection[Allocation] = (),
    runs: Callable[[str], bool] = lambda pod_uid: False,
) -> Attributed:
    """pods: the API's unfinished pods, by UID. ended: UIDs of finished or deleted pods. before: the last attribution; it stays if
    the kubelet contradicts itself, or if UIDs and names cannot be matched because the API has shown no pod yet. runs: whether
    containers of a pod may run with devices that the kubelet did not allocate.
    """
    named: dict[str, tuple[str, str]] = {}
    static_pods: dict[str, str] = {}
    if not pods and (state.entries is None or state.rows is None):
        claimed = [a for a in before if a.pod_uid not in ended]
        if state.rows is not None:
            named = _names(claimed, state.rows)
            claimed = [a for a in claimed if a.pod_uid in named]
    elif state.entries is None:
        claimed = list(_by_name(state.rows or (), pods, resources))
    else:
        named = _names(state.entries, state.rows or ())
        static_pods = _static_pods(named, pods)
        # without names a static pod's devices are known to be held, but its mirror pod is unknown
        claimed_uids = {pod.config_hash for pod in pods.values()} if state.rows is None else set()
        unfinished = pods.keys() | ((named.keys() | claimed_uids) - set(ended))
        entries = _under_uids_of_the_api(state.entries, static_pods)
        claimed = [entry for entry in entries if entry.pod_uid in unfinished]
    known = [allocation for allocation in claimed if allocation.resource_name in resources and allocation.device_ids]
    held_on = (a for a in before if is_elsewhere(a) and (not pods or a.pod_uid in pods or runs(a.pod_uid)))
    known += _not_reported(tuple(held_on), known, pods)
    attributed = {(a.pod_uid, a.container, a.resource_name) for a in before}
    known.sort(key=lambda a: ((a.pod_uid, a.container, a.resource_name) not in attributed, a.pod_uid, a.container))
    # if a resource has the same allocations as before, or less, no device can have passed to another pod
    same = {id(allocation) for allocation in before}
    changed = {allocation.resource_name for allocation in known if id(allocation) not in same}
    kept, conflicts = each_device_once(a for a in known if a.resource_name in changed)
    kept += tuple(a for a in known if a.resource_name not in changed)
    unknown = ({a.pod_uid for a in kept} - pods.keys()) & named.keys()
    return Attributed(kept, {uid: Pod(uid, *named[uid], containers=()) for uid in unknown}, conflicts, static_pods)


def _not_reported(
    found: Collection[Allocation], kubelets: Iterable[Allocation], pods: Mapping[str, Pod]
) -> list[Allocation]:
    """Allocations of `found` that the kubelet does not report as its own. kubelets: the allocations that it reports."""
    kubelets = tuple(kubelets) if found else ()
    keys, static = {a.key for a in kubelets}, {(a.key, a.device_ids) for a in kubelets}

    def is_kubelets(a: Allocation) -> bool:
        # while the kubelet's names are unknown, its allocations to static pods have their own UIDs
        other = pods[a.pod_uid].config_hash if a.pod_uid in pods else ""
        return a.key in keys or ((other, *a.key[1:]), a.device_ids) in static

    return [a for a in found if not is_kubelets(a)]


def is_elsewhere(allocation: Allocation) -> bool:
    """Whether the agent made it. Its pod keeps it, unless the kubelet allocates other devices to the container."""
    return allocation.delivery not in ("", DELIVERY_KUBELET)


def _names(entries: Iterable[Allocation], rows: Iterable[PodResourcesRow]) -> dict[str, tuple[str, str]]:
    """Map UIDs to namespace and name, if pod resources have the same devices in a container of the same name."""
    by_devices = {(row.resource_name, row.container, row.device_ids): (row.namespace, row.name) for row in rows}
    return {
        entry.pod_uid: by_devices[key]
        for entry in entries
        if (key := (entry.resource_name, entry.container, entry.device_ids)) in by_devices
    }


def _static_pods(named: Mapping[str, tuple[str, str]], pods: Mapping[str, Pod]) -> dict[str, str]:
    """The kubelet's UID by that of the mirror pod. Any user can set the annotation, but the kubelet decides the UID's name."""
    return {
        uid: pod.config_hash for uid, pod in pods.items() if named.get(pod.config_hash) == (pod.namespace, pod.name)
    }


def _under_uids_of_the_api(entries: Iterable[Allocation], static_pods: Mapping[str, str]) -> list[Allocation]:
    uids = {kubelets: uid for uid, kubelets in static_pods.items()}
    return [
        structs.replace(entry, pod_uid=uids[entry.pod_uid]) if entry.pod_uid in uids else entry for entry in entries
    ]


def _by_name(
    rows: Iterable[PodResourcesRow], pods: Mapping[str, Pod], resources: Mapping[str, Resource]
) -> Iterator[Allocation]:
    """Make an allocation without the plugin's response, which only the checkpoint has."""
    by_name = {(pod.namespace, pod.name): pod for pod in pods.values()}
    for row in rows:
        pod, resource = by_name.get((row.namespace, row.name)), resources.get(row.resource_name)
        if pod is not None and resource is not None:
            numa = resource.numa_nodes(row.device_ids)
            ids = by_numa(row.device_ids, numa)
            yield Allocation(pod.uid, row.container, row.resource_name, ids, b"", delivery=DELIVERY_KUBELET)
