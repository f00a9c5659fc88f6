"""NodeDevice: the fields that the operator decodes."""

import msgspec

from nodedevice_operator.objects.meta import MetadataSchema, Schema, Value


class StatusFields(Schema):
    status: dict[str, msgspec.Raw] = msgspec.field(name="f:status", default_factory=dict)


class StatusWriter(Schema):
    """The fields of one field manager. They are as long as the object, and decoded only for unexpected managers."""

    manager: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=lambda: msgspec.Raw(b"{}"))


class NodeDeviceMetadata(MetadataSchema):
    creation_timestamp: str = ""
    managed_fields: list[StatusWriter] = []


class CordonSchema(Schema):
    id: str = ""
    by: str = ""


class NodeDeviceSpec(Schema):
    node_name: str
    resource_name: str
    cordoned_devices: list[CordonSchema] = []


class EndpointSchema(Schema):
    state: str | None = None
    since: str = ""


class PartCounts(Value, frozen=True):
    """Of one physical device; see the CRD."""

    total: int = 0
    healthy: int = 0
    allocated: int = 0
    available: int = 0


class HeldParts(Value, frozen=True):
    """Parts of one physical device that a container holds. numbers: ranges, see nodedevice_api.parts."""

    parent: str
    parts: int
    numbers: str = ""


class PartRulesStatus(Schema):
    placement: str = ""
    choice: str = ""
    containers: str = ""
    sm_percent: int | None = None
    advertise: str = ""
    largest_available: int = 0


class DeviceStatus(Schema):
    id: str
    health: str = ""
    reason: str = ""
    presence: str = "Present"
    numa_nodes: list[int] = []
    parts: PartCounts | None = None


class AllocationStatus(Schema):
    pod_uid: str = msgspec.field(name="podUID")
    container: str
    device_ids: list[str] = msgspec.field(name="deviceIDs", default_factory=list)
    parts: tuple[HeldParts, ...] = ()
    namespace: str = ""
    name: str = ""
    releasing: bool = False
    not_injected: bool = False
    omitted: int = msgspec.field(name="deviceIDsOmitted", default=0)


class Waiting(Value, frozen=True):
    """A container that requested the resource and does not have it yet. not_injected: it runs all the same. final: for ever."""

    pod_uid: str = msgspec.field(name="podUID")
    container: str
    reason: str
    namespace: str = ""
    name: str = ""
    message: str = ""
    not_injected: bool = False
    final: bool = False


class ConditionStatus(Schema):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class AgentInfo(Schema):
    runtime: str = ""
    served_by: str = ""


class NodeDeviceStatusSchema(Schema):
    total: int | None = None
    healthy: int = 0
    cordoned: int = 0
    allocated: int = 0
    releasing: int = 0
    reserved: int = 0
    available: int = 0
    endpoint: EndpointSchema | None = None
    agent: AgentInfo | None = None
    parts: PartRulesStatus | None = None
    devices: list[DeviceStatus] = []
    devices_omitted: int = 0
    allocations: list[AllocationStatus] = []
    allocations_omitted: int = 0
    waiting: tuple[Waiting, ...] = ()
    remembered_cordons: list[CordonSchema] = []
    conditions: list[ConditionStatus] = []


class NodeDeviceSchema(Schema):
    metadata: NodeDeviceMetadata
    spec: NodeDeviceSpec
    status: NodeDeviceStatusSchema = msgspec.field(default_factory=NodeDeviceStatusSchema)
