"""The facts of an explanation, read at one moment, and the kinds that could not be read. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from kubectl_nodedevice.cluster import Lease, Node, NodeDevice, Pod, PodDevice, Release
from kubectl_nodedevice.device_state import holders_of
from kubectl_nodedevice.why.controllers.controller import Controller
from kubectl_nodedevice.why.kinds import DeviceClass, Event, ResourceClaim, Slice, SliceDevice, Workload


@dataclass(frozen=True, slots=True)
class Unread:
    """A kind that could not be read. kind: with its group, as in a role. role: a role that may read it."""

    kind: str
    why: str
    role: str = ""


DeviceName = tuple[str, str, str]
PoolName = tuple[str, str]


@dataclass(frozen=True)
class Facts:
    """pod: None if it does not exist.

    family: controllers that would make a missing pod, the outermost first; `pod` is then the pod that they would make, `pods` are
    their pods, and `pod_names` all of the namespace. has_queue: Kueue is installed. workload: its object of the pod or Job.
    predecessors: pods, as namespace/name, that end only when this one is Ready; rollout: their controller. namespace_deleted: a
    time; namespace_words: why it still exists. A kind that could not be read is empty, and is in `unread`.
    """

    now: datetime
    namespace: str = ""
    name: str = ""
    pod: Pod | None = None
    pod_device: PodDevice | None = None
    nodes: tuple[Node, ...] = ()
    node_devices: tuple[NodeDevice, ...] = ()
    leases: tuple[Lease, ...] = ()
    claims: tuple[ResourceClaim, ...] = ()
    classes: tuple[DeviceClass, ...] = ()
    slices: tuple[Slice, ...] = ()
    templates: frozenset[str] = frozenset()
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    pod_names: tuple[str, ...] = ()
    family: tuple[Controller, ...] = ()
    workload: Workload | None = None
    has_queue: bool = False
    predecessors: frozenset[str] = frozenset()
    rollout: Controller | None = None
    namespace_deleted: str = ""
    namespace_words: str = ""
    release: Release = field(default_factory=Release)
    unread: tuple[Unread, ...] = ()

    @property
    def is_absent(self) -> bool:
        return self.pod is None or not self.pod.meta.uid

    @property
    def maker(self) -> Controller | None:
        """The controller that would make the pod: of a Deployment the ReplicaSet with the newest template."""
        makers = [each for each in self.family if each.makes_pods]
        return max(makers, key=lambda each: (bool(each.wanted), each.revision, each.meta.created), default=None)

    def has_read(self, kind: str) -> bool:
        """Whether the kind was read, so that an absent object does not exist."""
        return all(each.kind != kind for each in self.unread)

    def node_device(self, node: str, resource: str) -> NodeDevice | None:
        return self._node_devices.get((node, resource))

    def lease(self, node: str) -> Lease | None:
        return self._leases.get(node)

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self._claims.get((namespace, name))

    def offered_on(self, node: str) -> tuple[tuple[Slice, SliceDevice], ...]:
        """Return devices of DRA drivers that only this node has, of the newest generation of their pools."""
        return self._offered.get(node, ())

    @cached_property
    def offering_drivers(self) -> frozenset[str]:
        return frozenset(each.driver for each in self.slices if each.devices)

    @cached_property
    def drivers_beyond_nodes(self) -> frozenset[str]:
        """Drivers with devices of more than one node. Only the scheduler knows which nodes can use them."""
        return frozenset(each.driver for each in self.slices if each.devices and not each.node)

    @cached_property
    def device_holders(self) -> Mapping[DeviceName, str]:
        """The holder of each device of a driver: by the claims, else by NodeDevices."""
        if self.has_read(CLAIMS):
            return {device: f"by {each.holder}" for each in self.claims for device in each.devices}
        return {
            (found.driver, found.pool, device): f"by {holders[-1].pod}"
            for found in self.node_devices
            for device, holders in holders_of(found).items()
        }

    @cached_property
    def _node_devices(self) -> Mapping[tuple[str, str], NodeDevice]:
        return {(each.node, each.resource): each for each in self.node_devices}

    @cached_property
    def _leases(self) -> Mapping[str, Lease]:
        return {each.meta.name: each for each in self.leases}

    @cached_property
    def _claims(self) -> Mapping[tuple[str, str], ResourceClaim]:
        return {(each.meta.namespace, each.meta.name): each for each in self.claims}

    @cached_property
    def _nodes(self) -> Mapping[str, Node]:
        return {each.meta.name: each for each in self.nodes}

    @cached_property
    def refused_pools(self) -> Mapping[PoolName, str]:
        """Incomplete pools, which the scheduler does not use, with the reason."""
        found = {pool: _fault(slices) for pool, slices in self._pools.items()}
        return {pool: fault for pool, fault in found.items() if fault}

    @cached_property
    def _pools(self) -> Mapping[PoolName, Sequence[Slice]]:
        """The slices of each pool's newest generation."""
        found: dict[PoolName, list[Slice]] = {}
        for each in self.slices:
            found.setdefault(each.whole_pool, []).append(each)
        newest = {pool: max(each.generation for each in slices) for pool, slices in found.items()}
        return {pool: [each for each in of if each.generation == newest[pool]] for pool, of in found.items()}

    @cached_property
    def _offered(self) -> Mapping[str, tuple[tuple[Slice, SliceDevice], ...]]:
        found: dict[str, list[tuple[Slice, SliceDevice]]] = {}
        for slices in self._pools.values():
            for each in slices:
                found.setdefault(each.node, []).extend((each, device) for device in each.devices)
        return {node: tuple(each) for node, each in found.items() if node}


def _fault(slices: Sequence[Slice]) -> str:
    """Return why a pool is incomplete, or "".

    Source: k8s.io/dynamic-resource-allocation structured/internal, GatherPools @ 1.37.
    """
    count, names = (
        max(each.count for each in slices),
        Counter(device.name for each in slices for device in each.devices),
    )
    pool = f"its pool {slices[0].pool} has"
    if count > 0 and len(slices) != count:
        return f"({pool} {len(slices)} of {count} ResourceSlices)"
    twice = sorted(name for name, number in names.items() if number > 1)
    return f"({pool} {twice[0]} twice)" if twice else ""


# kinds, named as in roles
NODES = "nodes"
NODE_DEVICES = "nodedevices.nodedevice.io"
POD_DEVICES = "poddevices.nodedevice.io"
LEASES = "leases.coordination.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
# of the pod's namespace only, if the reader may not read all
OWN_CLAIMS = "resourceclaims"
CLASSES = "deviceclasses.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
EVENTS = "events"
WORKLOADS = "workloads.kueue.x-k8s.io"
NAMESPACES = "namespaces"
