"""PodDevice: the decoded object, the content to write, and the record for comparing stored ones."""

import hashlib
from dataclasses import dataclass, field

import msgspec
from nodedevice_api.poddevice import HoldingContainer, PodDeviceSpec, PodDeviceStatus
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import MetadataSchema, Schema


class PodDeviceSchema(Schema):
    metadata: MetadataSchema
    spec: PodDeviceSpec = msgspec.field(default_factory=PodDeviceSpec)
    status: PodDeviceStatus = msgspec.field(default_factory=PodDeviceStatus)


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that the operator writes into a PodDevice. `owner_uid` is of the Pod that owns it."""

    node: str
    pod_uid: str
    owner_uid: str
    resources: str
    devices: str
    health: str
    containers: tuple[HoldingContainer, ...]

    def fingerprint(self) -> str:
        """Equal for equal contents, and short: a PodDevice is compared by it, not kept."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class PodDeviceRecord:
    """A PodDevice: its pod, and a fingerprint of everything that the operator writes into it."""

    namespace: str
    name: str
    uid: str
    resource_version: int = field(compare=False)
    node: str
    pod_uid: str
    fingerprint: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def pod_device_record(obj: PodDeviceSchema) -> PodDeviceRecord:
    meta = obj.metadata
    content = Content(
        node=obj.spec.node_name,
        pod_uid=obj.spec.pod_uid,
        owner_uid=next((o.uid for o in meta.owner_references if o.kind == "Pod"), ""),
        resources=obj.status.resources,
        devices=obj.status.devices,
        health=obj.status.health,
        containers=obj.status.containers,
    )
    return PodDeviceRecord(
        intern(meta.namespace),
        intern(meta.name),
        meta.uid,
        int(meta.resource_version),
        intern(obj.spec.node_name),
        intern(obj.spec.pod_uid),
        content.fingerprint(),
    )
