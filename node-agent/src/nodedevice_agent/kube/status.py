"""Encodes the agent's part of a NodeDevice's status from a snapshot and the time stamps of the observed status.

A time stamp is copied from the observed status while its entry is the same: equal state gives an equal status, also after a
restart. The time of an allocation comes from the checkpoint, because the observed status may be deleted; without one it is copied.
Bounds are the CRD's: above them the numbers stay exact, and lists are truncated and count the omitted entries.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, takewhile
from typing import Final, TypeVar

from msgspec import to_builtins
from msgspec.json import encode
from nodedevice_api.names import AGENT_CONDITIONS, SERVED_BY_NODEDEVICE, Condition
from nodedevice_api.nodedevice import (
    AgentStatus,
    AllocationStatus,
    CordonedDevice,
    DeviceStatus,
    EndpointStatus,
    HeldParts,
    NodeDeviceStatus,
    PartRulesStatus,
    Waiting,
)
from nodedevice_api.parts import Advertise, PartRules
from nodedevice_api.wire import Record

from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES, AllocationView, DeviceView, PendingView, Snapshot
from nodedevice_agent.kube import parts
from nodedevice_agent.kube.conditions import ConditionValue, kept_since, of_snapshot, with_times
from nodedevice_agent.kube.observed import Json

MAX_ALLOCATIONS = 1024
MAX_IDS = 1024
MAX_WAITING = 256
# Stored size of one list: the API server rejects an object of 1.5 MiB with an error in the form of a server error.
MAX_LIST_BYTES = 256 * 1024
# The API server stores each of these as six bytes, such as \u003c.
_LONGER_STORED: Final = (b"<", b">", b"&")

_Entry = TypeVar("_Entry", bound=Record)
_NO_ENDPOINT: Final = EndpointStatus()
_NO_DEVICE: Final = DeviceStatus(id="")
_HEALTHY: Final = "Healthy"


def node_device_status(
    now: Snapshot,
    before: NodeDeviceStatus,
    *,
    wall_time: str,
    version: str,
    delivery: str = "",
    served_by: str = SERVED_BY_NODEDEVICE,
    unsaved: str = "",
    notes: str = "",
    registered: ConditionValue | None = None,
    injectable: ConditionValue | None = None,
    is_watch_stale: bool = False,
    rows: Sequence[AllocationStatus] | None = None,
    conditions: Mapping[str, ConditionValue] | None = None,
) -> NodeDeviceStatus:
    """Every field of status that the agent owns.

    before: the observed status, with any owner's fields. wall_time: RFC 3339, whole seconds.
    delivery: DELIVERY_*; empty if neither the agent nor the kubelet delivers.
    unsaved: why the agent's checkpoint cannot be written now; empty while it can.
    notes: a problem that an administrator should know of, such as an unreadable checkpoint.
    registered: the condition without a problem; None: from the plugin.
    injectable: the condition, from the backend; None if the agent does not inject.
    is_watch_stale: whether the API server is silent over the watch of the node's pods, or of this NodeDevice.
    rows: the sorted allocations to show, if not the snapshot's.
    conditions: by type, conditions that are not the snapshot's.
    """
    devices, omitted = _devices(now, before, wall_time)
    earlier = _by_container(before.allocations)
    by_parent = now.part_rules is not None
    broken = frozenset(d.id for d in now.devices if not d.healthy) if now.is_live else frozenset[str]()
    shown = (_allocation(a, earlier, wall_time, broken, by_parent=by_parent) for a in now.held)
    held = sorted(shown, key=lambda a: (a.pod_uid, a.container)) if rows is None else [*rows]
    allocations, omitted_allocations = _truncated(held, MAX_ALLOCATIONS)
    awaited = _by_container(before.waiting)
    waiting, _ = _truncated([_waiting(w, awaited, wall_time) for w in now.pending], MAX_WAITING)
    # the operator restores cordons up to the limit, and the others follow
    cordons = [CordonedDevice(id=i, reason=c.reason, by=c.by, at=c.at) for i, c in now.remembered_cordons]
    remembered, _ = _truncated(cordons, MAX_NAMED_DEVICES)
    of_now = of_snapshot(now, unsaved, notes, registered, injectable, is_watch_stale=is_watch_stale)
    return NodeDeviceStatus(
        total=now.total,
        healthy=now.healthy,
        cordoned=now.cordoned,
        allocated=now.allocated,
        releasing=now.releasing,
        reserved=now.reserved,
        available=now.available,
        endpoint=_endpoint(now, before.endpoint or _NO_ENDPOINT, wall_time),
        agent=AgentStatus(version=version, delivery=delivery, runtime=delivery, served_by=served_by),
        parts=_part_rules(now, now.part_rules) if now.part_rules is not None else None,
        devices=devices,
        devices_omitted=omitted,
        allocations=allocations,
        allocations_omitted=omitted_allocations + now.possible_holders,
        waiting=waiting,
        waiting_pods=len({each.pending.pod_uid for each in now.pending}),
        remembered_cordons=remembered,
        conditions=with_times(before, wall_time, {**of_now, **(conditions or {})}),
    )


def _part_rules(now: Snapshot, rules: PartRules) -> PartRulesStatus:
    # another pod may hold devices that are unknown here, so a parent has at most the total
    largest = max((device.parts.available for device in now.devices if device.parts is not None), default=0)
    return PartRulesStatus(
        placement=str(rules.placement),
        choice=str(rules.choice),
        containers=str(rules.containers),
        advertise=str(rules.advertise),
        sm_percent=rules.sm_percent,
        largest_available=min(largest, now.available),
    )


def _endpoint(now: Snapshot, before: EndpointStatus, wall_time: str) -> EndpointStatus:
    return EndpointStatus(
        state=now.state.value,
        pre_start_required=now.options.pre_start_required,
        get_preferred_allocation_available=now.options.get_preferred_allocation_available,
        since=kept_since(before.since, wall_time, is_same=before.state == now.state.value),
    )


def _devices(now: Snapshot, before: NodeDeviceStatus, wall_time: str) -> tuple[list[DeviceStatus], int]:
    earlier = {d.id: d for d in before.devices}
    shown = [_device(d, earlier.get(d.id, _NO_DEVICE), wall_time) for d in now.devices]
    listed = shown
    if len(shown) > MAX_NAMED_DEVICES or not _fits(shown):
        # The same choice as in the snapshot: the smaller group of healthy and other devices comes first.
        are_few = 2 * sum(device.health == _HEALTHY for device in shown) <= len(shown)
        ranked = sorted(shown, key=lambda device: (device.health == _HEALTHY) != are_few)
        listed = sorted(_truncated(ranked, MAX_NAMED_DEVICES)[0], key=lambda device: device.id)
    return listed, now.total - sum(device.parts.total if device.parts is not None else 1 for device in listed)


def _device(device: DeviceView, before: DeviceStatus, wall_time: str) -> DeviceStatus:
    health = _HEALTHY if device.healthy else "Unhealthy"
    is_whole = device.parts is None or not device.present
    presence = ("Present" if device.present else "Missing") if is_whole else ""
    is_same = (before.health, before.presence, before.reason) == (health, presence, device.reason)
    return DeviceStatus(
        id=str(device.id),
        health=health,
        presence=presence,
        reason=device.reason,
        message=device.message if device.reason else None,
        parts=device.parts,
        since=kept_since(before.since, wall_time, is_same=is_same),
        cordoned_since=(before.cordoned_since or wall_time) if device.cordoned else "",
        cordoned_by=device.cordoned_by,
        numa_nodes=list(device.numa_nodes),
        attributes=dict(device.attributes),
        taints=list(device.taints),
    )


_Container = TypeVar("_Container", AllocationStatus, Waiting)


def _by_container(entries: Iterable[_Container]) -> Mapping[tuple[str, str], _Container]:
    return {(entry.pod_uid, entry.container): entry for entry in entries}


def _allocation(
    held: AllocationView,
    before: Mapping[tuple[str, str], AllocationStatus],
    wall_time: str,
    broken: frozenset[str] = frozenset(),
    *,
    by_parent: bool,
) -> AllocationStatus:
    """broken: devices that are not healthy, which are named before others."""
    allocation = held.allocation
    uid = _shown_uid(allocation.pod_uid, held.pod)
    earlier = before.get((uid, allocation.container))
    since = earlier.since if earlier is not None else ""
    if allocation.since:
        # after a clock was set back it may be in the future; it stays unchanged
        since = datetime.fromtimestamp(allocation.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    of_parents: list[HeldParts] = []
    ids, omitted = list(map(str, allocation.device_ids)), 0
    if by_parent:
        of_parents, ids, omitted = parts.by_parent(ids)
    if len(ids) > MAX_IDS:
        first = sorted(ids, key=lambda device_id: device_id not in broken)[:MAX_IDS]
        ids, omitted = sorted(first), omitted + len(ids) - MAX_IDS
    # the name of a deleted pod is copied from the observed status
    named = held.pod or earlier
    return AllocationStatus(
        namespace=named.namespace if named is not None else "",
        name=named.name if named is not None else "",
        pod_uid=uid,
        container=allocation.container,
        # a node has hundreds of allocations with parts: these have no time, which the age of the PodDevice shows
        since="" if of_parents else since or wall_time,
        parts=of_parents,
        device_ids=ids,
        omitted=omitted,
        releasing=held.releasing,
        not_injected=held.not_injected,
    )


def _waiting(entry: PendingView, before: Mapping[tuple[str, str], Waiting], wall_time: str) -> Waiting:
    waiting, pod = entry.pending, entry.pod
    uid = _shown_uid(waiting.pod_uid, pod)
    earlier = before.get((uid, waiting.container))
    is_same = earlier is not None and earlier.reason == waiting.reason
    return Waiting(
        namespace=pod.namespace if pod else "",
        name=pod.name if pod else "",
        pod_uid=uid,
        container=waiting.container,
        reason=waiting.reason,
        message=waiting.message[:1024],
        since=kept_since(earlier.since if earlier is not None else "", wall_time, is_same=is_same),
        not_injected=entry.not_injected,
        final=waiting.is_final,
    )


def _shown_uid(pod_uid: str, pod: Pod | None) -> str:
    return pod.uid_in_api if pod is not None else pod_uid


def _truncated(entries: list[_Entry], limit: int) -> tuple[list[_Entry], int]:
    """As many entries as the bounds allow, and the number of omitted ones."""
    kept = entries[:limit]
    if not _fits(kept):
        sizes = accumulate(map(_size, kept))
        kept = kept[: sum(1 for _ in takewhile(lambda size: size <= MAX_LIST_BYTES, sizes))]
    return kept, len(entries) - len(kept)


def _fits(entries: Sequence[Record]) -> bool:
    """Whether the whole list has few enough bytes: one call, in a tenth of the time that a call for each entry takes."""
    encoded = encode(entries)
    return len(encoded) <= MAX_LIST_BYTES and encoded.isascii() and _stored_size(encoded) <= MAX_LIST_BYTES


def _size(entry: Record) -> int:
    """Its length in ASCII JSON."""
    encoded = encode(entry)
    return _stored_size(
        encoded if encoded.isascii() else json.dumps(to_builtins(entry), separators=(",", ":")).encode()
    )


def _stored_size(encoded: bytes) -> int:
    return len(encoded) + 5 * sum(map(encoded.count, _LONGER_STORED))


def owned(observed: Json, desired: Json) -> Json:
    """The observed status without fields of other writers, in our order: comparable with the desired one, both as JSON."""
    conditions = observed.get("conditions")
    found = {str(c.get("type")): c for c in conditions if isinstance(c, dict)} if isinstance(conditions, list) else {}
    ours = [_same_keys(found.get(each["type"], {}), each) for each in desired["conditions"]]
    # one that is only there while it holds
    over = (found.keys() & set(AGENT_CONDITIONS)).difference(each["type"] for each in desired["conditions"])
    return {**_same_keys(observed, desired), "conditions": ours + [found[kind] for kind in sorted(over)]}


def _same_keys(observed: Json, desired: Json) -> Json:
    return {key: value for key, value in observed.items() if key in desired}


def is_loss(before: NodeDeviceStatus, after: NodeDeviceStatus) -> bool:
    """Whether the scheduler could count on fewer devices after that write: the sum that the operator writes into the Node."""
    return _countable(after) < _countable(before)


def is_bulk(before: NodeDeviceStatus, after: NodeDeviceStatus) -> bool:
    """Whether the write is an object's first, or reports that a plugin is gone: hundreds of plugins may come or go at once."""
    is_first = before == NodeDeviceStatus()
    return is_first or (after.endpoint is not None and after.endpoint.state != EndpointState.RUNNING.value)


def _countable(status: NodeDeviceStatus) -> int:
    injectable = [c.status for c in status.conditions if c.type == Condition.INJECTABLE]
    rules = status.parts
    counts_largest = rules is not None and rules.advertise == Advertise.LARGEST
    available = rules.largest_available if rules is not None and counts_largest else status.available
    return status.allocated + status.reserved + (0 if injectable == ["False"] else available)
