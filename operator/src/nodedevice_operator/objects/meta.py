"""The forms in which the API server sends things: the few fields of each kind that the operator reads.

Decoding skips all others. Absent fields have the API's own defaults.
"""

from typing import Any

from msgspec import Raw, Struct, field


class Wire(Struct, rename="camel", gc=False):
    """Base of all wire forms: unknown fields are skipped, absent ones have defaults."""


class OwnerReference(Wire):
    kind: str = ""
    uid: str = ""


class OwnedStatus(Wire):
    capacity: dict[str, Any] = field(name="f:capacity", default_factory=dict)
    allocatable: dict[str, Any] = field(name="f:allocatable", default_factory=dict)


class OwnedFields(Wire):
    status: OwnedStatus = field(name="f:status", default_factory=OwnedStatus)


class ManagedFields(Wire):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: OwnedFields = field(name="fieldsV1", default_factory=OwnedFields)


class Metadata(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    owner_references: list[OwnerReference] = []


class Versioned(Wire):
    """Any object, and a bookmark of a watch: what all have in common."""

    metadata: Metadata = field(default_factory=Metadata)


class WatchEvent(Wire):
    """A line of a watch; its object is decoded when it is known what it is."""

    type: str
    object: Raw


class NodeMetadata(Wire):
    name: str = ""
    uid: str = ""
    resource_version: str = "0"
    creation_timestamp: str = ""
    managed_fields: list[ManagedFields] = []
    labels: dict[str, str] = {}


class NodeStatus(Wire):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class Taint(Wire):
    key: str = ""
    effect: str = ""
    value: str | None = None
    time_added: str | None = None


class NodeSpec(Wire):
    taints: list[Taint] = []


class Node(Wire):
    metadata: NodeMetadata
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class StatusFields(Wire):
    status: dict[str, Any] = field(name="f:status", default_factory=dict)


class StatusWriter(Wire):
    """Who owns which fields. They are a list as long as the object, read only where the writer is one to ask about."""

    manager: str = ""
    subresource: str = ""
    fields: Raw = field(name="fieldsV1", default_factory=lambda: Raw(b"{}"))


class NodeDeviceMetadata(Metadata):
    managed_fields: list[StatusWriter] = []


class NodeDeviceSpec(Wire):
    node_name: str
    resource_name: str


class Endpoint(Wire):
    state: str | None = None


class DeviceStatus(Wire):
    id: str
    health: str = ""
    reason: str = ""
    presence: str = "Present"
    numa_nodes: list[int] = []


class AllocationStatus(Wire):
    pod_uid: str = field(name="podUID")
    container: str
    device_ids: list[str] = field(name="deviceIDs")
    namespace: str = ""
    name: str = ""
    releasing: bool = False
    not_injected: bool = False
    omitted: int = field(name="deviceIDsOmitted", default=0)


class WaitingStatus(Wire):
    pod_uid: str = field(name="podUID")
    container: str
    reason: str
    namespace: str = ""
    name: str = ""
    message: str = ""
    not_injected: bool = False


class ConditionStatus(Wire):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Agent(Wire):
    runtime: str = ""


class NodeDeviceStatus(Wire):
    total: int | None = None
    healthy: int = 0
    cordoned: int = 0
    allocated: int = 0
    releasing: int = 0
    reserved: int = 0
    available: int = 0
    endpoint: Endpoint | None = None
    agent: Agent | None = None
    devices: list[DeviceStatus] = []
    devices_omitted: int = 0
    allocations: list[AllocationStatus] = []
    allocations_omitted: int = 0
    waiting: list[WaitingStatus] = []
    conditions: list[ConditionStatus] = []


class NodeDevice(Wire):
    metadata: NodeDeviceMetadata
    spec: NodeDeviceSpec
    status: NodeDeviceStatus = field(default_factory=NodeDeviceStatus)


class PodDeviceSpec(Wire):
    node_name: str = ""
    pod_uid: str = field(name="podUID", default="")


class ShownDevice(Wire):
    id: str
    health: str = ""
    numa_nodes: list[int] = []


class ShownResource(Wire):
    resource_name: str
    devices: list[ShownDevice] = []


class ShownContainer(Wire):
    name: str
    resources: list[ShownResource] = []


class PodDeviceStatus(Wire):
    resources: str = ""
    devices: str = ""
    health: str = ""
    containers: list[ShownContainer] = []


class PodDevice(Wire):
    metadata: Metadata
    spec: PodDeviceSpec = field(default_factory=PodDeviceSpec)
    status: PodDeviceStatus = field(default_factory=PodDeviceStatus)


class PodSpec(Wire):
    node_name: str = ""


class PodStatus(Wire):
    phase: str = ""


class PodMetadata(Wire):
    uid: str = ""
    deletion_timestamp: str | None = None


class Pod(Wire):
    metadata: PodMetadata
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class LeaseSpec(Wire):
    renew_time: str = ""
    lease_duration_seconds: int | None = None
    holder_identity: str | None = None
    acquire_time: str = ""
    lease_transitions: int | None = None


class LeaseMetadata(Metadata):
    annotations: dict[str, str] = {}


class Lease(Wire):
    metadata: LeaseMetadata
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class ListMetadata(Wire):
    resource_version: str = "0"
    continue_: str = field(name="continue", default="")


class NodeList(Wire):
    metadata: ListMetadata
    items: list[Node] = []


class NodeDeviceList(Wire):
    metadata: ListMetadata
    items: list[NodeDevice] = []


class PodDeviceList(Wire):
    metadata: ListMetadata
    items: list[PodDevice] = []


class LeaseList(Wire):
    metadata: ListMetadata
    items: list[Lease] = []


class ObjectMetadata(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"


class PartialObject(Wire):
    """Any object, asked for by its metadata alone."""

    metadata: ObjectMetadata


class PartialObjectList(Wire):
    """A list in that form; an empty one has null for items."""

    metadata: ListMetadata
    items: list[PartialObject] | None = None


class Cause(Wire):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Wire):
    causes: list[Cause] = []
    retry_after_seconds: float | None = None


class Status(Wire):
    """What the API server answers instead of an object."""

    message: str = ""
    reason: str = ""
    details: Details = field(default_factory=Details)


class ServedResource(Wire):
    name: str = ""


class ResourceList(Wire):
    """The kinds of one group and version."""

    resources: list[ServedResource] = []
