"""The objects of a cluster as far as people are shown them, as small records. `objects` makes them of what the API server has.

Knows no API server and no terminal. Times are text, as they are in the API; "" and None stand for what an object does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = Mapping[str, Any]

# status.agent.servedBy: who gives the devices out
BY_NODEDEVICE: Final = "nodedevice"
BY_KUBELET: Final = "kubelet"
BY_DRA: Final = "dra"
# spec.cordonedDevices: one of these IDs means every device of the resource on the node
ALL_DEVICES: Final = frozenset({"*", "all"})


@dataclass(frozen=True, slots=True)
class Release:
    """Where the release is, as the chart has it by default. namespace: of operator and agents. leases: of the agents' Leases."""

    namespace: str = "nodedevice-system"
    leases: str = "nodedevice-agents"


@dataclass(frozen=True, slots=True)
class Meta:
    """deleted: when its deletion was asked for; "" where it was not. owner: kind/name of its controller."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: str = ""
    deleted: str = ""
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    observed_generation: int = 0


NO_CONDITION: Final = Condition("")


@dataclass(frozen=True, slots=True)
class Cordon:
    """Of spec.cordonedDevices, or of status.rememberedCordons."""

    id: str
    reason: str = ""
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class PartCounts:
    total: int = 0
    healthy: int = 0
    allocated: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """Of a Node, or of a device that a DRA driver offers."""

    key: str
    value: str = ""
    effect: str = ""
    since: str = ""

    @property
    def repels(self) -> bool:
        """Whether what does not tolerate it is kept off, rather than preferably."""
        return self.effect in ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Device:
    """parts: None for a device that has none."""

    id: str
    health: str = ""
    presence: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    cordoned_since: str = ""
    cordoned_by: str = ""
    parts: PartCounts | None = None
    numa_nodes: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether its plugin reports it so; of a device with parts, whether one of them is."""
        return self.health == "Healthy"


@dataclass(frozen=True, slots=True)
class HeldParts:
    parent: str
    parts: int = 0
    numbers: str = ""
    sep: str = "-"


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    id: str
    share_id: str = ""
    consumed_capacity: Mapping[str, str] = field(default_factory=dict)
    admin_access: bool = False
    extended_resource: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    uid: str = ""
    devices: tuple[ClaimedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container holds of one NodeDevice. omitted: further device IDs that the object has no room for."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    since: str = ""
    parts: tuple[HeldParts, ...] = ()
    device_ids: tuple[str, ...] = ()
    omitted: int = 0
    releasing: bool = False
    not_injected: bool = False
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that is bound to the node and has not got its devices. final: it gets none."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    reason: str
    message: str = ""
    since: str = ""
    not_injected: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    state: str = ""
    since: str = ""
    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@dataclass(frozen=True, slots=True)
class Agent:
    version: str = ""
    runtime: str = ""
    served_by: str = ""


@dataclass(frozen=True, slots=True)
class PartRules:
    placement: str = ""
    choice: str = ""
    containers: str = ""
    advertise: str = ""
    sm_percent: int | None = None
    largest_available: int = 0


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One resource on one node. total: None where no agent has written a status. conditions: by type."""

    meta: Meta
    node: str
    resource: str
    cordons: tuple[Cordon, ...] = ()
    total: int | None = None
    healthy: int = 0
    cordoned: int = 0
    allocated: int = 0
    releasing: int = 0
    reserved: int = 0
    available: int = 0
    endpoint: Endpoint = Endpoint()
    agent: Agent = Agent()
    driver: str = ""
    pool: str = ""
    parts: PartRules | None = None
    devices: tuple[Device, ...] = ()
    devices_omitted: int = 0
    allocations: tuple[Allocation, ...] = ()
    allocations_omitted: int = 0
    waiting: tuple[Waiting, ...] = ()
    waiting_pods: int = 0
    remembered_cordons: tuple[Cordon, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def served_by(self) -> str:
        """Whose device manager gives the devices out; "" where no agent has written it yet."""
        return self.agent.served_by

    @property
    def honours_cordons(self) -> bool:
        """Whether a cordon of a device has an effect: of what the kubelet or a DRA driver gives out, none has."""
        return self.served_by in ("", BY_NODEDEVICE)

    def condition(self, kind: str) -> Condition:
        """The condition of that type; one with an empty status where nobody has written it."""
        return self.conditions.get(kind, NO_CONDITION)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    id: str
    health: str = ""
    numa_nodes: tuple[int, ...] = ()
    parts: int = 0
    of: int = 0
    claim: str = ""
    share_id: str = ""
    extended_resource: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldResource:
    name: str
    driver: str = ""
    pool: str = ""
    devices: tuple[HeldDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldingContainer:
    name: str
    resources: tuple[HeldResource, ...] = ()


@dataclass(frozen=True, slots=True)
class PodDevice:
    """The devices of one pod, whose name and namespace it has."""

    meta: Meta
    node: str
    pod_uid: str
    resources: str = ""
    devices: str = ""
    health: str = ""
    containers: tuple[HoldingContainer, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """capacity, allocatable: quantities by resource name, as they are written."""

    meta: Meta
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet reports so."""
        return self.conditions.get("Ready", NO_CONDITION).status == "True"


@dataclass(frozen=True, slots=True)
class Toleration:
    """key: "" tolerates each. operator: Exists or Equal. effect: "" means each."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether a pod with it may be on a node with that taint. Source: Kubernetes, v1.Toleration.ToleratesTaint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or self.value == taint.value


@dataclass(frozen=True, slots=True)
class Container:
    """requests: quantities by resource name, with limits where there is no request. claims: names within the pod.

    is_init: it ends before the others start. is_sidecar: an init container that runs on. state: running, waiting, terminated or "".
    last_words: of its last end, where it has left any.
    """

    name: str
    image: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    is_init: bool = False
    is_sidecar: bool = False
    state: str = ""
    reason: str = ""
    message: str = ""
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of a pod. name: within the pod. claim: name of the ResourceClaim; "" while it is being made of the template."""

    name: str
    claim: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """affinity: spec.affinity as it is. node: "" while it is not bound. conditions: by type.

    is_constrained: by other pods, ports or volumes besides, which only the scheduler weighs.
    """

    meta: Meta
    node: str = ""
    phase: str = ""
    scheduler: str = ""
    priority: int = 0
    runtime_class: str = ""
    gates: tuple[str, ...] = ()
    containers: tuple[Container, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Json = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    nominated_node: str = ""
    is_constrained: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and holds nothing for long."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Config:
    """A NodeDeviceConfig. selected, accepted, refused: numbers of nodes."""

    meta: Meta
    priority: int = 0
    node_selector: Json = field(default_factory=dict)
    plugins: Json = field(default_factory=dict)
    selected: int = 0
    accepted: int = 0
    refused: int = 0
    conditions: Mapping[str, Condition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lease:
    """By which an agent, or the operator that leads, shows that it is alive. duration_seconds: for how long a renewal counts."""

    meta: Meta
    holder: str = ""
    renewed: str = ""
    duration_seconds: int = 0
