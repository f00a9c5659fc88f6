"""The API server's JSON, turned into core records at once: only the fields that are needed are ever decoded.

Whatever many objects share is kept once: names, reasons, whole conditions. It is what thousands of nodes fit into memory by.
"""

import re
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, TypeVar

import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import FieldConflict
from nodedevice_operator.nodelabels.desired import TAINT, is_ours
from nodedevice_operator.objects import meta as forms
from nodedevice_operator.objects import nodedevice as records
from nodedevice_operator.objects.nodedevice import OURS
from nodedevice_operator.objects.quantity import count
from nodedevice_operator.poddevices.plan import Content, HeldDevice, HeldResource, HoldingContainer

_STATUS = "status"
_OVER = frozenset({"Succeeded", "Failed"})
# To whom the API server gives all that is there when somebody applies to an object of which nobody owns anything.
_BEFORE_FIRST_APPLY = "before-first-apply"
_WRITERS = frozenset({names.AGENT_FIELD_MANAGER, OURS, _BEFORE_FIRST_APPLY})
# what an agent always says of a resource
_OF_AGENT = frozenset({"f:total", "f:endpoint"})
_CONDITIONS = "f:conditions"
# as managedFields names the entries of a list
_THEIR_CONDITIONS = frozenset(
    f'k:{{"type":"{kind}"}}' for kind in (*names.AGENT_CONDITIONS, *names.OPERATOR_CONDITIONS)
)
_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')


# Values of which there are few kinds and thousands of equals; past so many kinds they are no longer worth remembering.
_MOST_SHARED = 4096

# an agent tells fewer, and shorter ones
_MOST_REFUSALS = 16
_LONGEST_REFUSAL = 900

_NOBODY: frozenset[str] = frozenset()

W = TypeVar("W", bound=forms.Wire)
V = TypeVar("V", records.ExtendedResource, records.Device, records.Condition)

_resources: dict[records.ExtendedResource, records.ExtendedResource] = {}
_devices: dict[records.Device, records.Device] = {}
_conditions: dict[records.Condition, records.Condition] = {}


def from_event(body: Mapping[str, Any], form: type[W]) -> W:
    """A watched object in its wire form. Raises msgspec.ValidationError where it is not that kind."""
    return msgspec.convert(body, form)


def node(wire: forms.Node) -> records.NodeRecord:
    """Record of a Node, with the owners of its extended resources from managedFields."""
    capacity, allocatable = _extended(wire.status.capacity), _extended(wire.status.allocatable)
    capacity_owners: dict[str, set[str]] = {}
    allocatable_owners: dict[str, set[str]] = {}
    for entry in wire.metadata.managed_fields:
        owner = _owner(entry)
        for owned, owners in (
            (entry.fields.status.capacity, capacity_owners),
            (entry.fields.status.allocatable, allocatable_owners),
        ):
            for key in owned:
                owners.setdefault(key.removeprefix("f:"), set()).add(owner)
    resources = {
        name: _shared(
            _resources,
            records.ExtendedResource(
                capacity.get(name),
                allocatable.get(name),
                frozenset(capacity_owners.get(name, ())),
                frozenset(allocatable_owners.get(name, ())),
            ),
        )
        for name in sorted(capacity.keys() | allocatable.keys())
    }
    meta = wire.metadata
    return records.NodeRecord(
        intern(meta.name),
        intern(meta.uid),
        int(meta.resource_version),
        resources,
        _marks(wire),
        intern(meta.creation_timestamp),
    )


def _marks(wire: forms.Node) -> records.Marks:
    labels = {key: value for key, value in wire.metadata.labels.items() if is_ours(key)}
    is_tainted = any(taint.key == TAINT for taint in wire.spec.taints)
    return records.Marks(is_tainted, labels) if labels or is_tainted else records.NO_MARKS


def node_device(wire: forms.NodeDevice) -> records.NodeDeviceRecord:
    """Record of a NodeDevice; of its devices, those that are held or broken."""
    meta, status = wire.metadata, wire.status
    held = {device_id for allocation in status.allocations for device_id in allocation.device_ids}
    # an ID is told several times in one object, and in no other
    ids = {device.id: device.id for device in status.devices}
    return records.NodeDeviceRecord(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=int(meta.resource_version),
        node=intern(wire.spec.node_name),
        resource=intern(wire.spec.resource_name),
        owner_uid=next((intern(o.uid) for o in meta.owner_references if o.kind == "Node"), None),
        has_status=(status.total is not None or status.endpoint is not None) and _is_of_agent(wire),
        total=status.total or 0,
        healthy=status.healthy,
        cordoned=status.cordoned,
        allocated=status.allocated,
        releasing=status.releasing,
        reserved=status.reserved,
        available=status.available,
        endpoint=intern(status.endpoint.state) if status.endpoint and status.endpoint.state else None,
        runtime=intern(status.agent.runtime) if status.agent else "",
        devices={ids[d.id]: _device(d) for d in status.devices if d.id in held or d.health != "Healthy"},
        listed=tuple(ids),
        devices_omitted=status.devices_omitted,
        allocations=tuple(_allocation(a, ids) for a in status.allocations),
        allocations_omitted=status.allocations_omitted,
        waiting=tuple(_waiting(w) for w in status.waiting),
        conditions={intern(c.type): _condition(c) for c in status.conditions},
        edited_by=_editors(meta.managed_fields),
    )


def _editors(entries: Sequence[forms.StatusWriter]) -> frozenset[str]:
    """Who else has written what is the agent's or the operator's. A condition of another type is its writer's own."""
    others = [entry for entry in entries if entry.subresource == _STATUS and entry.manager not in _WRITERS]
    return frozenset(intern(entry.manager) for entry in others if _is_edit(entry.fields)) if others else _NOBODY


def _is_of_agent(wire: forms.NodeDevice) -> bool:
    """Whether an agent told it, and not somebody by hand in its place.

    What was advertised stays so, and what nobody owns: managedFields can be reset or restored, and an agent that finds all as it
    would write it writes nothing.
    """
    writers = [entry for entry in wire.metadata.managed_fields if entry.subresource == _STATUS]
    if any(entry.manager == names.AGENT_FIELD_MANAGER for entry in writers):
        return True
    if any(c.type == names.Condition.ADVERTISED and c.status == "True" for c in wire.status.conditions):
        return True
    return not any(_OF_AGENT & _owned(entry.fields).keys() for entry in writers if entry.manager not in _WRITERS)


def _is_edit(fields: msgspec.Raw) -> bool:
    owned = _owned(fields)
    conditions = owned.get(_CONDITIONS)
    if isinstance(conditions, dict) and _THEIR_CONDITIONS & conditions.keys():
        return True
    return not owned.keys() <= {".", _CONDITIONS}


def _owned(fields: msgspec.Raw) -> Mapping[str, Any]:
    """What of the status is owned; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(fields, type=forms.StatusFields).status
    except msgspec.MsgspecError:
        return {}


def pod_device(wire: forms.PodDevice) -> records.PodDeviceRecord:
    """Record of a PodDevice: its content only as a fingerprint."""
    meta = wire.metadata
    containers = tuple(
        HoldingContainer(
            container.name,
            tuple(
                HeldResource(
                    resource.resource_name,
                    tuple(HeldDevice(d.id, d.health, tuple(d.numa_nodes)) for d in resource.devices),
                )
                for resource in container.resources
            ),
        )
        for container in wire.status.containers
    )
    content = Content(
        node=wire.spec.node_name,
        pod_uid=wire.spec.pod_uid,
        owner_uid=next((o.uid for o in meta.owner_references if o.kind == "Pod"), ""),
        resources=wire.status.resources,
        devices=wire.status.devices,
        health=wire.status.health,
        containers=containers,
    )
    return records.PodDeviceRecord(
        intern(meta.namespace),
        intern(meta.name),
        meta.uid,
        int(meta.resource_version),
        intern(wire.spec.node_name),
        intern(wire.spec.pod_uid),
        content.fingerprint(),
    )


def pod(wire: forms.Pod) -> records.PodRecord:
    is_ending = bool(wire.metadata.deletion_timestamp) or wire.status.phase in _OVER
    return records.PodRecord(wire.metadata.uid, wire.spec.node_name, is_ending)


def lease(wire: forms.Lease, default_seconds: int) -> records.LeaseRecord:
    refusals = wire.metadata.annotations.get(names.REFUSALS_ANNOTATION, "").splitlines()[:_MOST_REFUSALS]
    return records.LeaseRecord(
        wire.spec.renew_time,
        wire.spec.lease_duration_seconds or default_seconds,
        tuple(refusal[:_LONGEST_REFUSAL] for refusal in refusals if refusal),
    )


def field_conflicts(status: forms.Status) -> tuple[FieldConflict, ...]:
    """Who owns what, from the causes of a refused server-side apply."""
    found = ((cause, _MANAGER.match(cause.message)) for cause in status.details.causes)
    return tuple(
        FieldConflict(match[1] if match else "", cause.field)
        for cause, match in found
        if cause.reason == "FieldManagerConflict"
    )


def _extended(quantities: Mapping[str, str]) -> dict[str, int]:
    """Counts of the extended resources: names with a domain that is not Kubernetes' own."""
    return {
        intern(name): count(value) or 0
        for name, value in quantities.items()
        if "/" in name and "kubernetes.io/" not in name
    }


def _owner(entry: forms.ManagedFields) -> str:
    if entry.manager != OURS or (entry.operation, entry.subresource) == ("Apply", _STATUS):
        return intern(entry.manager)
    return f"{entry.manager} ({entry.operation} {entry.subresource})"


def _device(wire: forms.DeviceStatus) -> records.Device:
    is_missing = wire.presence == "Missing"
    return _shared(
        _devices, records.Device(intern(wire.health), intern(wire.reason), is_missing, tuple(wire.numa_nodes))
    )


def _allocation(wire: forms.AllocationStatus, ids: Mapping[str, str]) -> records.Allocation:
    return records.Allocation(
        intern(wire.namespace),
        intern(wire.name),
        intern(wire.pod_uid),
        intern(wire.container),
        tuple(ids.get(device_id, device_id) for device_id in wire.device_ids),
        wire.omitted,
        wire.releasing,
        wire.not_injected,
    )


def _waiting(wire: forms.WaitingStatus) -> records.Waiting:
    return records.Waiting(
        wire.namespace, wire.name, wire.pod_uid, wire.container, wire.reason, wire.message, wire.not_injected
    )


def _condition(wire: forms.ConditionStatus) -> records.Condition:
    return _shared(
        _conditions,
        records.Condition(
            intern(wire.status),
            intern(wire.reason),
            intern(wire.message),
            intern(wire.last_transition_time),
            wire.observed_generation,
        ),
    )


def _shared(known: dict[V, V], value: V) -> V:
    """The value that stands for all that are equal to it."""
    if len(known) >= _MOST_SHARED:
        known.clear()
    return known.setdefault(value, value)
