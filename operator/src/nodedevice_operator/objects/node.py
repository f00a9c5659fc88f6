"""Node: its schema, and the record of what the operator needs of it: extended resources with their owners, our taint and labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from nodedevice_api.extended_resources import count, is_extended_resource
from nodedevice_api.names import GROUP
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import OURS, STATUS, ObjectMetadata, Schema, shared

# The writer of a value that managedFields names no owner of, as on a Node that was created without managedFields.
UNKNOWN_WRITER: Final = "unknown"

LABEL_PREFIX: Final = f"{GROUP}/"
TAINT: Final = f"{LABEL_PREFIX}unhealthy-devices"
# Running pods are not affected; new pods that do not tolerate it go elsewhere.
TAINT_EFFECT: Final = "NoSchedule"
TOTAL: Final = ".total"
HEALTHY: Final = ".healthy"


class OwnedStatus(Schema):
    capacity: dict[str, msgspec.Raw] = msgspec.field(name="f:capacity", default_factory=dict)
    allocatable: dict[str, msgspec.Raw] = msgspec.field(name="f:allocatable", default_factory=dict)


class OwnedFields(Schema):
    status: OwnedStatus = msgspec.field(name="f:status", default_factory=OwnedStatus)


class ManagedFields(Schema):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: OwnedFields = msgspec.field(name="fieldsV1", default_factory=OwnedFields)


class NodeMetadata(ObjectMetadata):
    creation_timestamp: str = ""
    managed_fields: list[ManagedFields] = []
    labels: dict[str, str] = {}


class NodeStatus(Schema):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Taint(Schema):
    key: str = ""
    effect: str = ""
    value: str | None = None
    time_added: str | None = None


class NodeSpec(Schema):
    taints: list[Taint] = []


class NodeSchema(Schema):
    metadata: NodeMetadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


@dataclass(frozen=True, slots=True)
class ExtendedResource:
    """One extended resource as a Node shows it: the numbers and their field managers."""

    capacity: int | None = None
    allocatable: int | None = None
    capacity_owners: frozenset[str] = frozenset()
    allocatable_owners: frozenset[str] = frozenset()

    @property
    def is_present(self) -> bool:
        return self.capacity is not None or self.allocatable is not None

    @property
    def is_capacity_ours(self) -> bool:
        return self.capacity is not None and OURS in self.capacity_owners

    @property
    def is_allocatable_ours(self) -> bool:
        return self.allocatable is not None and OURS in self.allocatable_owners

    @property
    def is_ours(self) -> bool:
        return self.is_capacity_ours or self.is_allocatable_ours

    @property
    def capacity_strangers(self) -> frozenset[str]:
        return _strangers(self.capacity, self.capacity_owners)

    @property
    def allocatable_strangers(self) -> frozenset[str]:
        return _strangers(self.allocatable, self.allocatable_owners)

    @property
    def strangers(self) -> frozenset[str]:
        return self.capacity_strangers | self.allocatable_strangers


NO_RESOURCE: Final = ExtendedResource()


def _strangers(value: int | None, owners: frozenset[str]) -> frozenset[str]:
    if value is None:
        return frozenset()
    return owners - {OURS} if owners else frozenset({UNKNOWN_WRITER})


@dataclass(frozen=True, slots=True)
class TaintAndLabels:
    """The operator's taint and labels of a Node, actual or desired."""

    is_tainted: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


UNLABELED: Final = TaintAndLabels()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """made: when it was created, in the API's own form to the second. Texts of that form sort as their times do."""

    name: str
    uid: str
    resource_version: int = field(compare=False)
    resources: Mapping[str, ExtendedResource]
    taint_and_labels: TaintAndLabels = UNLABELED
    made: str = ""

    @property
    def key(self) -> str:
        return self.name

    @property
    def node(self) -> str:
        return self.name


_extended_resource = shared(ExtendedResource)


def node_record(obj: NodeSchema) -> NodeRecord:
    """Record of a Node, with the owners of its extended resources from managedFields."""
    capacity, allocatable = _extended(obj.status.capacity), _extended(obj.status.allocatable)
    capacity_owners: dict[str, set[str]] = {}
    allocatable_owners: dict[str, set[str]] = {}
    for entry in obj.metadata.managed_fields:
        owner = _owner(entry)
        for owned, owners in (
            (entry.fields.status.capacity, capacity_owners),
            (entry.fields.status.allocatable, allocatable_owners),
        ):
            for key in owned:
                owners.setdefault(key.removeprefix("f:"), set()).add(owner)
    resources = {
        name: _extended_resource(
            capacity.get(name),
            allocatable.get(name),
            frozenset(capacity_owners.get(name, ())),
            frozenset(allocatable_owners.get(name, ())),
        )
        for name in sorted(capacity.keys() | allocatable.keys())
    }
    meta = obj.metadata
    return NodeRecord(
        intern(meta.name),
        intern(meta.uid),
        int(meta.resource_version),
        resources,
        _taint_and_labels(obj),
        intern(meta.creation_timestamp),
    )


def is_our_label(label: str) -> bool:
    return label.startswith(LABEL_PREFIX) and label.endswith((TOTAL, HEALTHY))


def _taint_and_labels(obj: NodeSchema) -> TaintAndLabels:
    labels = {key: value for key, value in obj.metadata.labels.items() if is_our_label(key)}
    is_tainted = any(taint.key == TAINT for taint in obj.spec.taints)
    return TaintAndLabels(is_tainted, labels) if labels or is_tainted else UNLABELED


def _extended(quantities: Mapping[str, str]) -> dict[str, int]:
    return {intern(name): count(value) or 0 for name, value in quantities.items() if is_extended_resource(name)}


def _owner(entry: ManagedFields) -> str:
    if entry.manager != OURS or (entry.operation, entry.subresource) == ("Apply", STATUS):
        return intern(entry.manager)
    return f"{entry.manager} ({entry.operation} {entry.subresource})"
