"""NodeDevice: an object as the operator decodes it, with who wrote which fields; and which of them are only shown."""

from functools import lru_cache
from typing import Final

import msgspec
from nodedevice_api import names
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_api.nodedevice import NodeDeviceSpec, NodeDeviceStatus

from nodedevice_operator.objects.meta import MetadataSchema, Schema

# A cluster has a few dozen; each costs a regular expression.
_MOST_NAMES: Final = 4096


class StatusFields(Schema):
    status: dict[str, msgspec.Raw] = msgspec.field(name="f:status", default_factory=dict)


class StatusWriter(Schema):
    """The fields of one field manager. They are as long as the object, and decoded only for unexpected managers."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=lambda: msgspec.Raw(b"{}"))


class NodeDeviceMetadata(MetadataSchema):
    creation_timestamp: str = ""
    managed_fields: list[StatusWriter] = []


class NodeDeviceSchema(Schema):
    metadata: NodeDeviceMetadata
    spec: NodeDeviceSpec
    status: NodeDeviceStatus = msgspec.field(default_factory=NodeDeviceStatus)


def is_only_shown(served_by: str, resource: str) -> bool:
    """No capacity, eviction, taint, label, part or cordon: others allocate, or a Node cannot have a resource of that name."""
    return served_by in names.ONLY_SHOWN or not _may_be_capacity(resource)


@lru_cache(_MOST_NAMES)
def _may_be_capacity(resource: str) -> bool:
    return not resource_name_problem(resource)
