"""The API server's JSON, turned into core records at once: only the fields that are needed are ever decoded.

Strings that many objects share (resource names, reasons, device IDs) are kept once.
"""

import re
from collections.abc import Mapping
from sys import intern
from typing import Any, TypeVar

import msgspec

from nodedevice_operator.core import records
from nodedevice_operator.core.pod_devices import Content, HeldDevice, HeldResource, HoldingContainer
from nodedevice_operator.core.quantities import count
from nodedevice_operator.core.records import OURS
from nodedevice_operator.edges import wire_forms as forms
from nodedevice_operator.errors import FieldConflict

_STATUS = "status"
_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')


W = TypeVar("W", bound=forms.Wire)


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
        name: records.ExtendedResource(
            capacity.get(name),
            allocatable.get(name),
            frozenset(capacity_owners.get(name, ())),
            frozenset(allocatable_owners.get(name, ())),
        )
        for name in sorted(capacity.keys() | allocatable.keys())
    }
    meta = wire.metadata
    return records.NodeRecord(meta.name, meta.uid, int(meta.resource_version), resources)


def node_device(wire: forms.NodeDevice) -> records.NodeDeviceRecord:
    """Record of a NodeDevice; of its devices, those that are held or broken."""
    meta, status = wire.metadata, wire.status
    held = {device_id for allocation in status.allocations for device_id in allocation.device_ids}
    return records.NodeDeviceRecord(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=int(meta.resource_version),
        node=intern(wire.spec.node_name),
        resource=intern(wire.spec.resource_name),
        owner_uid=next((o.uid for o in meta.owner_references if o.kind == "Node"), None),
        has_status=status.total is not None or status.endpoint is not None,
        total=status.total or 0,
        healthy=status.healthy,
        cordoned=status.cordoned,
        allocated=status.allocated,
        releasing=status.releasing,
        available=status.available,
        endpoint=status.endpoint.state if status.endpoint else None,
        devices={intern(d.id): _device(d) for d in status.devices if d.id in held or d.health != "Healthy"},
        listed=tuple(intern(device.id) for device in status.devices),
        devices_omitted=status.devices_omitted,
        allocations=tuple(_allocation(a) for a in status.allocations),
        waiting=tuple(_waiting(w) for w in status.waiting),
        conditions={intern(c.type): _condition(c) for c in status.conditions},
    )


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
        meta.namespace,
        meta.name,
        meta.uid,
        int(meta.resource_version),
        intern(wire.spec.node_name),
        wire.spec.pod_uid,
        content.fingerprint(),
    )


def pod(wire: forms.Pod) -> records.PodRecord:
    return records.PodRecord(wire.metadata.uid, wire.spec.node_name)


def lease(wire: forms.Lease, default_seconds: int) -> records.LeaseRecord:
    return records.LeaseRecord(wire.spec.renew_time, wire.spec.lease_duration_seconds or default_seconds)


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
    return records.Device(intern(wire.health), intern(wire.reason), wire.presence == "Missing", tuple(wire.numa_nodes))


def _allocation(wire: forms.AllocationStatus) -> records.Allocation:
    ids = tuple(intern(device_id) for device_id in wire.device_ids)
    return records.Allocation(
        wire.namespace, wire.name, wire.pod_uid, intern(wire.container), ids, wire.omitted, wire.releasing
    )


def _waiting(wire: forms.WaitingStatus) -> records.Waiting:
    return records.Waiting(wire.namespace, wire.name, wire.pod_uid, wire.container, wire.reason, wire.message)


def _condition(wire: forms.ConditionStatus) -> records.Condition:
    return records.Condition(
        intern(wire.status),
        intern(wire.reason),
        intern(wire.message),
        wire.last_transition_time,
        wire.observed_generation,
    )
