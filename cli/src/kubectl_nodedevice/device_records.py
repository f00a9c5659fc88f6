"""NodeDevice and PodDevice as records, made of those of `nodedevice_api` by `make generate`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubectl_nodedevice.records import Meta, place


@dataclass(frozen=True, slots=True)
class Cordon:
    """Of spec.cordonedDevices and status.rememberedCordons."""

    id: str = ""
    reason: str = ""
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    state: str = ""
    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True)
class Agent:
    """delivery: how devices reach containers; "" where the agent does not know. runtime: the same, as earlier releases have it."""

    version: str = ""
    delivery: str = ""
    runtime: str = ""
    served_by: str = ""

    @property
    def known_delivery(self) -> str:
        """The field of an agent of this release or of the one before."""
        return self.delivery or self.runtime


@dataclass(frozen=True, slots=True)
class PartRules:
    """sm_percent: None where containers are not limited."""

    placement: str = ""
    choice: str = ""
    containers: str = ""
    advertise: str = ""
    sm_percent: int | None = None
    largest_available: int = 0


@dataclass(frozen=True, slots=True)
class PartCounts:
    """Counts of one physical device.

    total: listed or held. allocated: held, also by a pod that has ended. available: a pod could get them now.
    """

    total: int = 0
    healthy: int = 0
    allocated: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a DRA driver's device. effect: None, NoSchedule or NoExecute. since: "" if the driver gives no time."""

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
    """presence: Present or Missing; "" for a physical device with parts that is present. parts: None for a device that has none.

    reason, message: "" and None while it is healthy, and while its plugin is not connected.
    """

    id: str = ""
    health: str = ""
    presence: str = ""
    reason: str = ""
    message: str = ""
    parts: PartCounts | None = None
    since: str = ""
    cordoned_since: str = ""
    cordoned_by: str = ""
    numa_nodes: tuple[int, ...] = ()
    attributes: Mapping[str, str] = place("attributes", dict)
    taints: tuple[Taint, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether its plugin reports it so; whether one of its parts is, if it has parts."""
        return self.health == "Healthy"


@dataclass(frozen=True, slots=True)
class HeldParts:
    """Parts of one physical device that a container holds.

    numbers: ranges. sep: between parent and number in the IDs of the parts. See nodedevice_api.parts.
    """

    parent: str = ""
    parts: int = 0
    numbers: str = ""
    sep: str = "-"


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """Facts from a claim about one of its devices, beyond its name. A device is listed once for each of its shares.

    share_id: "" unless the device is shared. consumed_capacity: quantities by name. extended_resource: the name that the
    pod requested, if it did not name the claim itself.
    """

    id: str = ""
    share_id: str = place("shareID")
    consumed_capacity: Mapping[str, str] = place("consumedCapacity", dict)
    admin_access: bool = False
    extended_resource: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The ResourceClaim, in the pod's namespace, that gives a container devices of a DRA driver.

    uid: "" if the claim was not read. devices: only devices with facts, sorted by ID and share.
    """

    name: str = ""
    uid: str = ""
    devices: tuple[ClaimedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container holds, of a DRA driver by one claim. since: "" for parts. device_ids: of whole devices."""

    namespace: str = ""
    pod: str = place("name")
    pod_uid: str = place("podUID")
    container: str = ""
    since: str = ""
    parts: tuple[HeldParts, ...] = ()
    device_ids: tuple[str, ...] = place("deviceIDs", ())
    omitted: int = place("deviceIDsOmitted", 0)
    releasing: bool = False
    not_injected: bool = False
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that requested the resource and does not have it yet. not_injected: it runs all the same. final: it gets none."""

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
    """observed_generation: 0 in a condition of an agent."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    since: str = place("lastTransitionTime")
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """`health` is Unknown if the NodeDevice does not show it.

    parts, of: how many parts of it the container holds, of how many; 0 without parts. claim, share_id: of DRA.
    extended_resource: the name that the pod requested, if it did not name the claim itself. taints: as in the NodeDevice.
    """

    id: str = ""
    health: str = ""
    numa_nodes: tuple[int, ...] = ()
    parts: int = 0
    of: int = 0
    claim: str = ""
    share_id: str = place("shareID")
    extended_resource: str = ""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldResource:
    """What a container holds of one resource, sorted by device ID, claim and share. driver, pool: of DRA; "" for others."""

    name: str = place("resourceName")
    driver: str = ""
    pool: str = ""
    devices: tuple[HeldDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldingContainer:
    """A container and its resources, sorted by name."""

    name: str = ""
    resources: tuple[HeldResource, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """total, endpoint, agent: None if no agent has written a status. parts: None if the devices have no parts.

    driver, pool: of DRA, as in the ResourceSlices; "" for others. waiting_pods: of how many pods the list has containers,
    or would have, were it longer.
    """

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
    allocations_omitted: int = place("status.allocationsOmitted", 0)
    waiting: tuple[Waiting, ...] = place("status.waiting", ())
    waiting_pods: int = place("status.waitingPods", 0)
    remembered_cordons: tuple[Cordon, ...] = place("status.rememberedCordons", ())
    conditions: Mapping[str, Condition] = place("status.conditions", dict)


@dataclass(frozen=True, slots=True)
class PodDevice:
    """resources, devices, health: one line each, for people."""

    meta: Meta = place("metadata", Meta)
    node: str = place("spec.nodeName")
    pod_uid: str = place("spec.podUID")
    resources: str = place("status.resources")
    devices: str = place("status.devices")
    health: str = place("status.health")
    containers: tuple[HoldingContainer, ...] = place("status.containers", ())
