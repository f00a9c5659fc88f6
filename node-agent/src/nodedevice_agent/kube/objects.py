"""The objects that the agent reads and writes, with no more of each than that."""

from typing import Any

import msgspec
from nodedevice_api import names
from nodedevice_kube.paths import NODES, Resource

from nodedevice_agent.kube.responses import KubeMetadata, KubeObject


class OwnedMetadata(KubeMetadata, omit_defaults=True):
    ownerReferences: list[dict[str, Any]] | None = None


class NodeObjectStatus(msgspec.Struct):
    capacity: dict[str, str | int] = {}


class NodeObject(KubeObject):
    resource = NODES
    status: NodeObjectStatus = msgspec.field(default_factory=NodeObjectStatus)


class GenerationMetadata(KubeMetadata):
    generation: int = 0


class LabeledMetadata(KubeMetadata):
    labels: dict[str, str] | None = None


class NodeMetadataObject(KubeObject):
    """A Node without spec and status, which are some ten thousand bytes and change by themselves."""

    resource = NODES
    metadata: LabeledMetadata = msgspec.field(default_factory=LabeledMetadata)


class NodeDeviceConfigObject(KubeObject):
    """spec: undecoded and of any shape; it is decoded if it selects the node."""

    resource = Resource(names.API_VERSION, names.NODE_DEVICE_CONFIGS)
    metadata: GenerationMetadata = msgspec.field(default_factory=GenerationMetadata)
    spec: msgspec.Raw = msgspec.Raw(b"null")


class KindObject(msgspec.Struct):
    name: str = ""


class KindsObject(msgspec.Struct):
    resources: list[KindObject] = []


class NodeDeviceObject(KubeObject):
    resource = Resource(names.API_VERSION, names.NODE_DEVICES)
    metadata: OwnedMetadata = msgspec.field(default_factory=OwnedMetadata)
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class ReviewObject(KubeObject):
    status: dict[str, Any] = {}
