"""NodeDevice and PodDevice as records, by `make generate`; `nodedevice_api` documents their fields. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubectl_nodedevice.records import Meta, place


@dataclass(frozen=True, slots=True)
class Cordon:
    id: str = ""
    reason: str = ""
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    state: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Agent:
    delivery: str = ""
    runtime: str = ""
    served_by: str = ""

    @property
    def known_delivery(self) -> str:
        """The field of an agent of this release or of the one before."""
        return self.delivery or self.runtime


@dataclass(frozen=True, slots=True)
class PartRules:
    placement: str = ""
    choice: str = ""
    containers: str = ""


@dataclass(frozen=True, slots=True)
class PartCounts:
    total: int = 0
    healthy: int = 0
    allocated: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    key: str = ""
    value: str = ""
    effect: str = ""
    since: str = ""

    @property
    def is_exclusive(self) -> bool:
        """Whether only pods that tolerate it may get the device."""
        return self.effect in ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Device:
    id: str = ""
    health: str = ""
    presence: str = ""
    reason: str = ""
    message: str = ""
    parts: PartCounts | None = None
    since: str = ""
    cordoned_since: str = ""
    numa_nodes: tuple[int, ...] = ()
    attributes: Mapping[str, str] = place("attributes", dict)
    taints: tuple[Taint, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether its plugin reports it so; whether one of its parts is, if it has parts."""
        return self.health == "Healthy"


@dataclass(frozen=True, slots=True)
class HeldParts:
    parent: str = ""
    parts: int = 0


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    id: str = ""
    share_id: str = place("shareID")
    admin_access: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    name: str = ""
    devices: tuple[ClaimedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    namespace: str = ""
    pod: str = place("name")
    pod_uid: str = place("podUID")
    container: str = ""
    since: str = ""
    parts: tuple[HeldParts, ...] = ()
    device_ids: tuple[str, ...] = place("deviceIDs", ())
    releasing: bool = False
    not_injected: bool = False
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    namespace: str = ""
    pod: str = place("name")
    pod_uid: str = place("podUID")
    container: str = ""
    reason: str = ""
    message: str = ""
    since: str = ""
    not_injected: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = place("lastTransitionTime")


@dataclass(frozen=True, slots=True)
class HeldDevice:
    id: str = ""
    health: str = ""
    numa_nodes: tuple[int, ...] = ()
    parts: int = 0
    of: int = 0
    claim: str = ""
    share_id: str = place("shareID")


@dataclass(frozen=True, slots=True)
class HeldResource:
    name: str = place("resourceName")
    driver: str = ""
    pool: str = ""
    devices: tuple[HeldDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldingContainer:
    name: str = ""
    resources: tuple[HeldResource, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevice:
    meta: Meta = place("metadata", Meta)
    node: str = place("spec.nodeName")
    resource: str = place("spec.resourceName")
    cordons: tuple[Cordon, ...] = place("spec.cordonedDevices", ())
    total: int | None = place("status.total", None)
    healthy: int = place("status.healthy", 0)
    cordoned: int = place("status.cordoned", 0)
    allocated: int = place("status.allocated", 0)
    releasing: int = place("status.releasing", 0)
    reserved: int = place("status.reserved", 0)
    available: int = place("status.available", 0)
    endpoint: Endpoint | None = place("status.endpoint", None)
    agent: Agent | None = place("status.agent", None)
    driver: str = place("status.driver")
    pool: str = place("status.pool")
    parts: PartRules | None = place("status.parts", None)
    devices: tuple[Device, ...] = place("status.devices", ())
    devices_omitted: int = place("status.devicesOmitted", 0)
    allocations: tuple[Allocation, ...] = place("status.allocations", ())
    waiting: tuple[Waiting, ...] = place("status.waiting", ())
    remembered_cordons: tuple[Cordon, ...] = place("status.rememberedCordons", ())
    conditions: Mapping[str, Condition] = place("status.conditions", dict)


@dataclass(frozen=True, slots=True)
class PodDevice:
    meta: Meta = place("metadata", Meta)
    node: str = place("spec.nodeName")
    pod_uid: str = place("spec.podUID")
    resources: str = place("status.resources")
    devices: str = place("status.devices")
    health: str = place("status.health")
    containers: tuple[HoldingContainer, ...] = place("status.containers", ())
