"""Who holds what where the kubelet is the allocator: its checkpoint, its pod resources and the API's pods, put together.

The checkpoint knows pods by UID and keeps those that are over until the next pod asks for a device; pod resources know them
by name and leave out init containers that end; the API says which pods are over. A pod that the API does not show (yet), but
pod resources do, is held for real. Without a readable checkpoint the names alone have to do.
Source: kubelet pkg/kubelet/cm/devicemanager (checkpoint) and pkg/kubelet/apis/podresources @ 1.37.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, by_numa
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resource import Resource

# namespace and name
Named = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """What pod resources tell of one container and resource. device_ids: sorted, each once."""

    namespace: str
    name: str
    container: str
    resource_name: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the kubelet said. None: its checkpoint cannot be read, its pod resources do not answer."""

    entries: tuple[Allocation, ...] | None = None
    rows: tuple[Row, ...] | None = None


@dataclass(frozen=True, slots=True)
class Attribution:
    """allocations: no device in those of two pods. strangers: pods that hold devices and are not seen in the API (yet).

    disputed: what was left out because the kubelet says of two pods that they hold the same device.
    """

    allocations: tuple[Allocation, ...]
    strangers: Mapping[str, Pod]
    disputed: tuple[Allocation, ...]


def attribute(
    holdings: Holdings,
    pods: Mapping[str, Pod],
    ended: Collection[str],
    resources: Mapping[str, Resource],
    before: Collection[Allocation] = (),
) -> Attribution:
    """Say which pod holds what, of the resources that are known here.

    pods: those of the API that are not over, by UID. ended: UIDs that the API says are over or gone. before: what was said last;
    where the kubelet contradicts itself, that stays.
    """
    strangers: dict[str, Pod] = {}
    if holdings.entries is None:
        claimed = _by_name(holdings.rows or (), pods, resources)
    else:
        claimed = _by_uid(holdings.entries, holdings.rows or (), pods, ended, strangers)
    known = [allocation for allocation in claimed if allocation.resource_name in resources and allocation.device_ids]
    standing = {(a.pod_uid, a.container, a.resource_name) for a in before}
    known.sort(key=lambda a: ((a.pod_uid, a.container, a.resource_name) not in standing, a.pod_uid, a.container))
    kept, disputed = _each_device_once(known)
    holding = {allocation.pod_uid for allocation in kept}
    return Attribution(kept, {uid: pod for uid, pod in strangers.items() if uid in holding}, disputed)


def _by_uid(
    entries: Iterable[Allocation],
    rows: Iterable[Row],
    pods: Mapping[str, Pod],
    ended: Collection[str],
    strangers: dict[str, Pod],
) -> Iterator[Allocation]:
    """Entries of pods that go on; `strangers` gets the pods that only the kubelet knows."""
    entries = tuple(entries)
    named = _names(entries, rows)
    for entry in entries:
        uid = entry.pod_uid
        if uid not in pods:
            if uid in ended or uid not in named:
                continue
            strangers[uid] = Pod(uid, *named[uid], containers=())
        yield entry


def _names(entries: Iterable[Allocation], rows: Iterable[Row]) -> dict[str, Named]:
    """UID to name, wherever pod resources tell of the same devices in a container of the same name."""
    told = {(row.resource_name, row.container, row.device_ids): (row.namespace, row.name) for row in rows}
    found = {}
    for entry in entries:
        named = told.get((entry.resource_name, entry.container, entry.device_ids))
        if named is not None:
            found[entry.pod_uid] = named
    return found


def _by_name(rows: Iterable[Row], pods: Mapping[str, Pod], resources: Mapping[str, Resource]) -> Iterator[Allocation]:
    """The kubelet's answer to the container is in its checkpoint alone, so none is known here."""
    by_name = {(pod.namespace, pod.name): pod for pod in pods.values()}
    for row in rows:
        pod, resource = by_name.get((row.namespace, row.name)), resources.get(row.resource_name)
        if pod is not None and resource is not None:
            numa = resource.numa_nodes(row.device_ids)
            yield Allocation(pod.uid, row.container, row.resource_name, by_numa(row.device_ids, numa), b"")


def _each_device_once(claimed: Iterable[Allocation]) -> tuple[tuple[Allocation, ...], tuple[Allocation, ...]]:
    holders: dict[tuple[str, str], str] = {}
    kept, disputed = [], []
    for allocation in claimed:
        keys = [(allocation.resource_name, device_id) for device_id in allocation.device_ids]
        if any(holders.get(key, allocation.pod_uid) != allocation.pod_uid for key in keys):
            disputed.append(allocation)
            continue
        holders.update(dict.fromkeys(keys, allocation.pod_uid))
        kept.append(allocation)
    return tuple(kept), tuple(disputed)
