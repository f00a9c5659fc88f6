"""Records of the cluster's objects, with the fields that this program shows. Pure.

Times are text, as in the API; "" and None stand for an absent field.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from nodedevice_kube.fields import Json as Json
from nodedevice_kube.fields import list_of, map_of, number_of, text_of, texts_of

from kubectl_nodedevice import device_records
from kubectl_nodedevice.device_records import Agent as Agent
from kubectl_nodedevice.device_records import Allocation as Allocation
from kubectl_nodedevice.device_records import Claim as Claim
from kubectl_nodedevice.device_records import ClaimedDevice as ClaimedDevice
from kubectl_nodedevice.device_records import Condition as Condition
from kubectl_nodedevice.device_records import Cordon as Cordon
from kubectl_nodedevice.device_records import Device as Device
from kubectl_nodedevice.device_records import Endpoint as Endpoint
from kubectl_nodedevice.device_records import HeldDevice as HeldDevice
from kubectl_nodedevice.device_records import HeldParts as HeldParts
from kubectl_nodedevice.device_records import HeldResource as HeldResource
from kubectl_nodedevice.device_records import HoldingContainer as HoldingContainer
from kubectl_nodedevice.device_records import PartCounts as PartCounts
from kubectl_nodedevice.device_records import PartRules as PartRules
from kubectl_nodedevice.device_records import PodDevice as PodDevice
from kubectl_nodedevice.device_records import Taint as Taint
from kubectl_nodedevice.device_records import Waiting as Waiting
from kubectl_nodedevice.records import Meta as Meta
from kubectl_nodedevice.records import place, record_of
from kubectl_nodedevice.text import moment

# status.agent.servedBy: the device manager that allocates
BY_NODEDEVICE: Final = "nodedevice"
BY_KUBELET: Final = "kubelet"
BY_DRA: Final = "dra"
# spec.cordonedDevices: one of these IDs means every device of the resource on the node
ALL_DEVICES: Final = frozenset({"*", "all"})
NO_CONDITION: Final = Condition()
SYSTEM_NAMESPACE: Final = "nodedevice-system"
AGENTS_NAMESPACE: Final = "nodedevice-agents"
# A node's clock may differ from the API server's.
_SKEW_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Release:
    """The release's namespaces, by default the chart's. namespace: of operator and agents. leases: of the agents' Leases."""

    namespace: str = SYSTEM_NAMESPACE
    leases: str = AGENTS_NAMESPACE


@dataclass(frozen=True, slots=True)
class Object:
    meta: Meta = place("metadata", Meta)
    conditions: Mapping[str, Condition] = place("status.conditions", dict)


def taints_of(found: Any) -> tuple[Taint, ...]:
    """Decode the taints of a Node, or of a device in a ResourceSlice."""
    return tuple(replace(record_of(Taint, each), since=text_of(each, "timeAdded")) for each in list_of(found))


@dataclass(frozen=True, slots=True)
class NodeDevice(device_records.NodeDevice):
    endpoint: Endpoint = place("status.endpoint", Endpoint)
    agent: Agent = place("status.agent", Agent)

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def served_by(self) -> str:
        """The device manager that allocates the devices; "" until an agent has written it."""
        return self.agent.served_by

    @property
    def honours_cordons(self) -> bool:
        """Whether cordons of its devices have an effect. The kubelet and DRA drivers ignore them."""
        return self.served_by in ("", BY_NODEDEVICE)

    def condition(self, kind: str) -> Condition:
        """Return the condition of that type, or one with an empty status."""
        return self.conditions.get(kind, NO_CONDITION)


def _writers(managed_fields: Any) -> Mapping[str, str]:
    return {
        key.removeprefix("f:"): text_of(entry, "manager")
        for entry in list_of(managed_fields)
        for key in map_of(entry, "fieldsV1", "f:status", "f:allocatable")
        if "/" in key
    }


@dataclass(frozen=True, slots=True)
class Node:
    """allocatable: quantities by resource name, as written. writers: field managers by resource name."""

    meta: Meta = place("metadata", Meta)
    unschedulable: bool = place("spec.unschedulable", False)
    taints: tuple[Taint, ...] = place("spec.taints", (), by=taints_of)
    allocatable: Mapping[str, str] = place("status.allocatable", dict)
    conditions: Mapping[str, Condition] = place("status.conditions", dict)
    writers: Mapping[str, str] = place("metadata.managedFields", dict, by=_writers)


@dataclass(frozen=True, slots=True)
class Toleration:
    """key: "" tolerates each. operator: Exists or Equal. effect: "" means each."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Source: Kubernetes, v1.Toleration.ToleratesTaint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or self.value == taint.value


@dataclass(frozen=True, slots=True)
class Container:
    """requests: quantities by resource name; limits count without a request. claims: names within the pod.

    is_init: it ends before the others start. is_sidecar: an init container that runs on. last_words: of its last termination.
    state: running, waiting, terminated or "".
    """

    name: str = ""
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
    """A claim of a pod. name: within the pod. claim: name of the ResourceClaim; "" until it is created from the template."""

    name: str = ""
    claim: str = ""
    template: str = ""


def _containers(pod: Json) -> tuple[Container, ...]:
    """Init containers come first, as they start."""
    found: list[Container] = []
    for key, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        states = {text_of(each, "name"): each for each in list_of(pod, "status", statuses)}
        for each in list_of(pod, "spec", key):
            found.append(_container(each, key == "initContainers", states.get(text_of(each, "name"), {})))
    return tuple(found)


def _container(obj: Json, is_init: bool, status: Json) -> Container:
    states = map_of(status, "state")
    state = next(iter(states), "")
    return Container(
        text_of(obj, "name"),
        text_of(obj, "image"),
        {**texts_of(obj, "resources", "limits"), **texts_of(obj, "resources", "requests")},
        _names(list_of(obj, "resources", "claims")),
        is_init,
        is_init and text_of(obj, "restartPolicy") == "Always",
        state,
        text_of(states, state, "reason"),
        text_of(states, state, "message"),
        text_of(states, "terminated", "message") or text_of(status, "lastState", "terminated", "message"),
    )


def _names(found: Any) -> tuple[str, ...]:
    return tuple(text_of(each, "name") for each in found) if isinstance(found, list) else ()


def _pod_claims(pod: Json) -> Iterator[PodClaim]:
    statuses = list_of(pod, "status", "resourceClaimStatuses")
    made = {text_of(each, "name"): text_of(each, "resourceClaimName") for each in statuses}
    for each in list_of(pod, "spec", "resourceClaims"):
        name = text_of(each, "name")
        claim = text_of(each, "resourceClaimName") or made.get(name, "")
        yield PodClaim(name, claim, text_of(each, "resourceClaimTemplateName"))


def _is_constrained(spec: Json) -> bool:
    """Whether the scheduler compares it with other pods, or with volumes."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    by_pods = any(list_of(spec, "affinity", kind, required) for kind in ("podAffinity", "podAntiAffinity"))
    spread = list_of(spec, "topologySpreadConstraints")
    ports = [port for each in list_of(spec, "containers") for port in list_of(each, "ports")]
    volumes = list_of(spec, "volumes")
    return (
        by_pods
        or any(text_of(each, "whenUnsatisfiable") != "ScheduleAnyway" for each in spread)
        or any(number_of(each, "hostPort") for each in ports)
        or any(map_of(each, "persistentVolumeClaim") or map_of(each, "ephemeral") for each in volumes)
    )


@dataclass(frozen=True, slots=True)
class Pod:
    """affinity: spec.affinity. node: "" until it is bound. conditions: by type.

    is_constrained: only the scheduler weighs its other constraints (pods, ports, volumes). extended_claim: the claim that the
    scheduler created for its extended resources.
    """

    meta: Meta = place("metadata", Meta)
    node: str = place("spec.nodeName")
    phase: str = place("status.phase")
    account: str = place("spec.serviceAccountName")
    scheduler: str = place("spec.schedulerName")
    gates: tuple[str, ...] = place("spec.schedulingGates", (), by=_names)
    containers: tuple[Container, ...] = place(default=(), by=_containers)
    claims: tuple[PodClaim, ...] = place(default=(), by=lambda pod: tuple(_pod_claims(pod)))
    node_selector: Mapping[str, str] = place("spec.nodeSelector", dict)
    affinity: Json = place("spec.affinity", dict)
    tolerations: tuple[Toleration, ...] = place("spec.tolerations", ())
    conditions: Mapping[str, Condition] = place("status.conditions", dict)
    reason: str = place("status.reason")
    message: str = place("status.message")
    nominated_node: str = place("status.nominatedNodeName")
    is_constrained: bool = place("spec", False, by=_is_constrained)
    extended_claim: str = place("status.extendedResourceClaimStatus.resourceClaimName")

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease of an agent or of the leading operator. duration_seconds: how long a renewal counts."""

    meta: Meta = place("metadata", Meta)
    holder: str = place("spec.holderIdentity")
    renewed: str = place("spec.renewTime")
    duration_seconds: int = place("spec.leaseDurationSeconds", 0)

    def is_overdue(self, now: datetime) -> bool:
        """Whether it has expired by the API server's clock, also if the clock that renewed it is some minutes behind."""
        renewed = moment(self.renewed)
        return renewed is not None and (now - renewed).total_seconds() > self.duration_seconds + _SKEW_SECONDS
