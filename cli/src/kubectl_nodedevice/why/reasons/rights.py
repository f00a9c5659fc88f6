"""Who may run a line: the roles, and what a line does at the API server. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """With which a person may run a line: roles of Kubernetes, and of the chart."""

    VIEW = "view"
    EDIT = "edit"
    FLEET_VIEW = "nodedevice-fleet-view"
    CORDON = "nodedevice-cordon"
    ADMIN = "cluster-admin"


# the namespace of the pod that is explained
OF_THE_POD: Final = "{namespace}"
# where the agents and the operator are
OF_THE_RELEASE: Final = "{system}"


@dataclass(frozen=True, slots=True)
class Access:
    """A right of the reader that the API server checks. namespace: OF_THE_POD, OF_THE_RELEASE, or "" for all."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""


ALL_PODS: Final = Access("list", "pods")
SYSTEM_PODS: Final = Access("list", "pods", namespace=OF_THE_RELEASE)
OWN_POD: Final = Access("get", "pods", namespace=OF_THE_POD)
PATCH_POD: Final = Access("patch", "pods", namespace=OF_THE_POD)
DELETE_POD: Final = Access("delete", "pods", namespace=OF_THE_POD)
NODES: Final = Access("list", "nodes")
PATCH_NODE: Final = Access("patch", "nodes")
FLEET: Final = Access("list", "nodedevices", "nodedevice.io")
CORDON: Final = Access("patch", "nodedevices", "nodedevice.io")
CLASSES: Final = Access("list", "deviceclasses", "resource.k8s.io")
SLICES: Final = Access("list", "resourceslices", "resource.k8s.io")
CLAIMS: Final = Access("list", "resourceclaims", "resource.k8s.io", namespace=OF_THE_POD)
