"""What is known when a question is answered, and what is not: values that were read at one moment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kubectl_nodedevice.cluster import Lease, Node, NodeDevice, Pod, PodDevice
from kubectl_nodedevice.why.kinds import DeviceClass, Event, Quota, ResourceClaim, Slice


@dataclass(frozen=True, slots=True)
class Unread:
    """A kind that could not be read. kind: as in a role, with its group. why: in a few words. role: with which it can be read."""

    kind: str
    why: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """pod: None where there is none of that name. extended_claim: what the scheduler made for the pod's extended resources.

    capacity_owners: field managers by node and resource. pods, quotas: of the namespace, where there is no such pod. A kind
    that could not be read is empty here, and in `unread`.
    """

    now: datetime
    namespace: str = ""
    name: str = ""
    pod: Pod | None = None
    pod_device: PodDevice | None = None
    extended_claim: str = ""
    nodes: tuple[Node, ...] = ()
    node_devices: tuple[NodeDevice, ...] = ()
    leases: tuple[Lease, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[Slice, ...] = ()
    templates: frozenset[str] = frozenset()
    pods: tuple[Pod, ...] = ()
    quotas: tuple[Quota, ...] = ()
    events: tuple[Event, ...] = ()
    capacity_owners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    unread: tuple[Unread, ...] = ()

    def has_read(self, kind: str) -> bool:
        """Whether what is missing of that kind is really not there."""
        return all(each.kind != kind for each in self.unread)

    def node_device(self, node: str, resource: str) -> NodeDevice | None:
        """What an agent shows of that resource there."""
        return next((each for each in self.node_devices if (each.node, each.resource) == (node, resource)), None)

    def lease(self, node: str) -> Lease | None:
        """Of the node's agent."""
        return next((each for each in self.leases if each.meta.name == node), None)

    def node(self, name: str) -> Node | None:
        return next((each for each in self.nodes if each.meta.name == name), None)


# the kinds, as they are in roles
NODES = "nodes"
NODE_DEVICES = "nodedevices.nodedevice.io"
POD_DEVICES = "poddevices.nodedevice.io"
LEASES = "leases.coordination.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
# those of the pod's namespace, where those of all may not be read
OWN_CLAIMS = "resourceclaims"
CLASSES = "deviceclasses.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
QUOTAS = "resourcequotas"
EVENTS = "events"
