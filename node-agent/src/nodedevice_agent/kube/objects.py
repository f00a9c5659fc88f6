"""The objects that the agent reads and writes, with no more of each than that, and the verbs that it may use on them."""

from typing import Any, Final

import msgspec
from lightkube.core import resource as res
from nodedevice_api import names

from nodedevice_agent.kube.responses import KubeMetadata, KubeObject


class OwnedMetadata(KubeMetadata, omit_defaults=True):
    ownerReferences: list[dict[str, Any]] | None = None


def api_info(group: str, version: str, kind: str, plural: str, *verbs: str, action: str | None = None) -> res.ApiInfo:
    definition = res.ResourceDef(group, version, kind)
    return res.ApiInfo(definition, plural, list(verbs), parent=definition if action else None, action=action)


class NodeObjectStatus(msgspec.Struct):
    capacity: dict[str, str | int] = {}


class NodeObject(KubeObject, res.GlobalResource):
    status: NodeObjectStatus = msgspec.field(default_factory=NodeObjectStatus)
    _api_info = api_info("", "v1", "Node", "nodes", "get")


class GenerationMetadata(KubeMetadata):
    generation: int = 0


class LabeledMetadata(KubeMetadata):
    labels: dict[str, str] | None = None


class NodeMetadataObject(KubeObject, res.GlobalResource):
    """A Node without spec and status, which are some ten thousand bytes and change by themselves."""

    metadata: LabeledMetadata = msgspec.field(default_factory=LabeledMetadata)
    _api_info = api_info("", "v1", "Node", "nodes", "list", "watch")


class NodeDeviceConfigObject(KubeObject, res.GlobalResource):
    """spec: as it is stored; it is of any shape, and decoded where it selects the node."""

    metadata: GenerationMetadata = msgspec.field(default_factory=GenerationMetadata)
    spec: msgspec.Raw = msgspec.Raw(b"null")
    _api_info = api_info(
        names.GROUP, names.VERSION, names.NODE_DEVICE_CONFIG, names.NODE_DEVICE_CONFIGS, "list", "watch"
    )


class KindObject(msgspec.Struct):
    name: str = ""


class KindsObject(msgspec.Struct):
    """What the API server says of a group."""

    resources: list[KindObject] = []


class NodeDeviceObject(KubeObject, res.GlobalResource):
    metadata: OwnedMetadata = msgspec.field(default_factory=OwnedMetadata)
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = api_info(
        names.GROUP, names.VERSION, names.NODE_DEVICE, names.NODE_DEVICES, "get", "list", "watch", "patch"
    )


class NodeDeviceStatusObject(NodeDeviceObject, res.GlobalSubResource):
    _api_info = api_info(names.GROUP, names.VERSION, names.NODE_DEVICE, names.NODE_DEVICES, "patch", action="status")


class ReviewObject(KubeObject, res.GlobalResource):
    # the library sets both before it sends an object
    apiVersion: str | None = None
    kind: str | None = None
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class TokenReviewObject(ReviewObject):
    _api_info = api_info("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "post")


class SubjectAccessReviewObject(ReviewObject):
    _api_info = api_info("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "post")


REVIEWS: Final[dict[str, type[ReviewObject]]] = {
    "TokenReview": TokenReviewObject,
    "SubjectAccessReview": SubjectAccessReviewObject,
}
