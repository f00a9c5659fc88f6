"""PodDevices: which devices each pod of a node holds, made from the allocations in that node's NodeDevices.

A releasing allocation is not shown: its pod has ended. The caller must check that the pod exists, on this node, before a
PodDevice is created: agents are not trusted blindly.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from nodedevice_api.nodedevice import HeldParts
from nodedevice_api.parts import numbers_of
from nodedevice_api.poddevice import HeldDevice, HeldResource, HoldingContainer

from nodedevice_operator.objects.nodedevice import AllocationRecord, ClaimedShare, NodeDeviceRecord
from nodedevice_operator.objects.poddevice import Content, PodDeviceRecord

# Limits of the schema: a PodDevice with more would be rejected at every retry. The flat columns, 4096 at most, count unlisted
# devices.
_LONGEST_LINE: Final = 4000
_MOST_CONTAINERS: Final = 256
_MOST_RESOURCES: Final = 64
_MOST_DEVICES: Final = 1024
_MOST_PARTS: Final = 131_072
# Devices of one resource in a line for people; beyond that the first ones and the number.
_MOST_IN_LINE: Final = 32
_FIRST_IN_LINE: Final = 4
_HEALTHY: Final = "Healthy"
_UNKNOWN: Final = "Unknown"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DesiredPodDevice:
    """A PodDevice that should exist, and the device IDs of its pod by resource."""

    namespace: str
    name: str
    content: Content
    held: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def pod_uid(self) -> str:
        return self.content.pod_uid


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for one node. `create`: read the pod first; the PodDevice paired with it, if any, is replaced."""

    create: tuple[tuple[DesiredPodDevice, PodDeviceRecord | None], ...] = ()
    update: tuple[tuple[DesiredPodDevice, PodDeviceRecord], ...] = ()
    delete: tuple[PodDeviceRecord, ...] = ()


def desired_pod_devices(node: str, node_devices: Iterable[NodeDeviceRecord]) -> tuple[DesiredPodDevice, ...]:
    """The PodDevices that the NodeDevices of `node` call for, sorted by namespace, name and pod UID."""
    held: dict[tuple[str, str, str], list[tuple[NodeDeviceRecord, AllocationRecord]]] = defaultdict(list)
    for record in node_devices:
        for allocation in record.allocations:
            if allocation.namespace and allocation.name and not allocation.is_releasing:
                held[allocation.namespace, allocation.name, allocation.pod_uid].append((record, allocation))
    return tuple(_desired(node, *pod, held[pod]) for pod in sorted(held))


def plan(
    wanted: Iterable[DesiredPodDevice],
    existing: Mapping[Key, PodDeviceRecord],
    of_node: Iterable[PodDeviceRecord],
    *,
    may_delete: bool,
) -> Plan:
    """existing: by key, of all nodes. of_node: of this one. may_delete: False while some NodeDevice of it has no status yet."""
    create: list[tuple[DesiredPodDevice, PodDeviceRecord | None]] = []
    update: list[tuple[DesiredPodDevice, PodDeviceRecord]] = []
    desired_keys: set[tuple[Key, str]] = set()
    for want in wanted:
        desired_keys.add((want.key, want.pod_uid))
        stored = existing.get(want.key)
        if stored is None or stored.pod_uid != want.pod_uid or stored.node != want.content.node:
            create.append((want, stored))
        elif stored.fingerprint != want.content.fingerprint():
            update.append((want, stored))
    delete = tuple(r for r in of_node if may_delete and (r.key, r.pod_uid) not in desired_keys)
    return Plan(tuple(create), tuple(update), delete)


def sentence(want: DesiredPodDevice, resources: Iterable[str]) -> str:
    """The pod's allocated devices of those resources, such as `example.com/gpu: gpu-0, gpu-1 on node-a`."""
    chosen = frozenset(resources)
    parts = [f"{resource}: {', '.join(ids)}" for resource, ids in want.held if resource in chosen]
    return _cut(f"{'; '.join(parts)} on {want.content.node}", 900)


def _desired(
    node: str, namespace: str, name: str, pod_uid: str, held: list[tuple[NodeDeviceRecord, AllocationRecord]]
) -> DesiredPodDevice:
    numbers, in_words = _in_words(held)
    shown = _containers(held)
    content = Content(
        node=node,
        pod_uid=pod_uid,
        owner_uid=pod_uid,
        resources=_cut(",".join(f"{resource}={numbers[resource]}" for resource, _ in in_words), _LONGEST_LINE),
        devices=_cut(",".join(device_id for _, found in in_words for device_id in found), _LONGEST_LINE),
        health=_cut(_health(shown, held), _LONGEST_LINE),
        containers=tuple(
            HoldingContainer(container.name, container.resources[:_MOST_RESOURCES])
            for container in shown[:_MOST_CONTAINERS]
        ),
    )
    return DesiredPodDevice(namespace, name, content, in_words)


def _containers(held: list[tuple[NodeDeviceRecord, AllocationRecord]]) -> tuple[HoldingContainer, ...]:
    """The containers with their resources, sorted; devices of one resource through several claims are one entry."""
    devices: dict[tuple[str, str], set[HeldDevice]] = defaultdict(set)
    for record, allocation in held:
        devices[allocation.container, record.resource].update(_devices(record, allocation))
    records = {record.resource: record for record, _ in held}
    found: dict[str, list[HeldResource]] = defaultdict(list)
    for (container, resource), of in sorted(devices.items()):
        record, in_order = records[resource], sorted(of, key=lambda device: (device.id, device.claim, device.share_id))
        found[container].append(HeldResource(resource, record.driver, record.pool, tuple(in_order[:_MOST_DEVICES])))
    return tuple(HoldingContainer(container, tuple(resources)) for container, resources in found.items())


def _devices(record: NodeDeviceRecord, allocation: AllocationRecord) -> Iterator[HeldDevice]:
    """The devices of an allocation; with a claim, once for each share."""
    shares: dict[str, list[ClaimedShare]] = defaultdict(list)
    for share in allocation.shares:
        shares[share.id].append(share)
    for device_id in allocation.device_ids:
        device = msgspec.structs.replace(_device(record, device_id), claim=allocation.claim)
        for share in shares.get(device_id, ()):
            yield msgspec.structs.replace(device, share_id=share.share_id, extended_resource=share.extended_resource)
        if device_id not in shares:
            yield device
    yield from (_device(record, of.parent, of.parts) for of in allocation.parts)


def _in_words(
    held: list[tuple[NodeDeviceRecord, AllocationRecord]],
) -> tuple[dict[str, int], tuple[tuple[str, tuple[str, ...]], ...]]:
    """By resource: how many devices or parts, and which. An init container's are reused by the others: each counts once."""
    numbers: dict[str, int] = {}
    words = []
    for record in sorted({record.resource: record for record, _ in held}.values(), key=lambda record: record.resource):
        allocations = [allocation for of, allocation in held if of.resource == record.resource]
        shown = sorted({device_id for allocation in allocations for device_id in allocation.device_ids})
        number = len(shown) + sum(allocation.omitted for allocation in allocations)
        for parent in sorted({parts.parent for allocation in allocations for parts in allocation.parts}):
            count = _distinct([parts for a in allocations for parts in a.parts if parts.parent == parent])
            number += count
            shown.append(f"{parent}: {count} of {_total(record, parent)}")
        numbers[record.resource] = number
        words.append((record.resource, tuple(_few(shown, max(number, len(shown))))))
    return numbers, tuple(words)


def _device(record: NodeDeviceRecord, device_id: str, parts: int = 0) -> HeldDevice:
    device = record.devices.get(device_id)
    of = _total(record, device_id) if parts else 0
    if device is None or record.ended:
        # The NodeDevice names its unhealthy devices first, and has no room for all healthy ones.
        is_healthy = record.devices_omitted and not record.unlisted_unhealthy and not record.ended
        return HeldDevice(device_id, _HEALTHY if is_healthy else _UNKNOWN, (), parts, of)
    return HeldDevice(device_id, device.health, device.numa_nodes, parts, of, taints=device.taints)


def _total(record: NodeDeviceRecord, parent: str) -> int:
    """How many parts that device has; 0 if the NodeDevice does not show it."""
    found = record.parts.get(parent)
    return found.total if found is not None else 0


def _distinct(entries: list[HeldParts]) -> int:
    """How many parts of one device the containers of a pod hold together."""
    if len(entries) == 1:
        return entries[0].parts
    try:
        return len({number for of in entries for number in numbers_of(of.numbers, _MOST_PARTS)})
    except ValueError:
        return max(of.parts for of in entries)


def _health(containers: tuple[HoldingContainer, ...], held: list[tuple[NodeDeviceRecord, AllocationRecord]]) -> str:
    broken: dict[str, set[str]] = defaultdict(set)
    for container in containers:
        for resource in container.resources:
            for device in resource.devices:
                if device.health != _HEALTHY:
                    broken[device.health].add(device.id)
    found = [
        each
        for health, ids in broken.items()
        for each in _few([f"{device_id} {health}" for device_id in sorted(ids)], len(ids), f"devices {health}")
    ]
    # An agent lists unhealthy devices first.
    unknown = sum(allocation.omitted for record, allocation in held if record.ended or record.unlisted_unhealthy)
    rest = [f"{unknown} more {_UNKNOWN}"] if unknown else []
    return ", ".join(sorted(found) + rest) or _HEALTHY


def _few(words: list[str], number: int, noun: str = "devices") -> list[str]:
    """All of a few; of more, the first ones and how many there are."""
    return words if len(words) <= _MOST_IN_LINE else [*words[:_FIRST_IN_LINE], f"… ({number} {noun})"]


def _cut(line: str, longest: int) -> str:
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
