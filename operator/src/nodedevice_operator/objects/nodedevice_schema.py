"""NodeDevice: an object as the operator decodes it, with who wrote which fields."""

import msgspec
from nodedevice_api.nodedevice import NodeDeviceSpec, NodeDeviceStatus

from nodedevice_operator.objects.meta import MetadataSchema, Schema


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


class NodeDeviceSchema(Schema):
    metadata: NodeDeviceMetadata
    spec: NodeDeviceSpec
    status: NodeDeviceStatus = msgspec.field(default_factory=NodeDeviceStatus)
