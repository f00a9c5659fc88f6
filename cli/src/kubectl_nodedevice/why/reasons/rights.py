"""The roles with which a line can be run, and the rights that it needs at the API server. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    VIEW = "view"
    EDIT = "edit"
    FLEET_VIEW = "nodedevice-fleet-view"
    CORDON = "nodedevice-cordon"
    ADMIN = "cluster-admin"


# the namespace of the explained pod
OF_THE_POD: Final = "{namespace}"
# the namespace of the agents and the operator
OF_THE_RELEASE: Final = "{system}"


@dataclass(frozen=True, slots=True)
class Access:
    """A right of the reader that the API server checks. namespace: OF_THE_POD, OF_THE_RELEASE, or "" for all."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""


def in_namespace(verb: str, resource: str, group: str = "") -> Access:
    return Access(verb, resource, group, OF_THE_POD)


ALL_PODS: Final = Access("list", "pods")
SYSTEM_PODS: Final = Access("list", "pods", namespace=OF_THE_RELEASE)
OWN_POD: Final = in_namespace("get", "pods")
DELETE_POD: Final = in_namespace("delete", "pods")
NODES: Final = Access("list", "nodes")
PATCH_NODE: Final = Access("patch", "nodes")
FLEET: Final = Access("list", "nodedevices", "nodedevice.io")
CORDON: Final = Access("patch", "nodedevices", "nodedevice.io")
CLASSES: Final = Access("list", "deviceclasses", "resource.k8s.io")
SLICES: Final = Access("list", "resourceslices", "resource.k8s.io")
CLAIMS: Final = in_namespace("list", "resourceclaims", "resource.k8s.io")
