"""NodeDevice: one resource on one node, in the API's form. Its agent writes the status, but for the operator's conditions.

`crds/nodedevices.yaml` says what each field means, and has its bounds and rules. Pure.
"""

from msgspec import field

from nodedevice_api.parts import OLD_SEPARATOR
from nodedevice_api.wire import Record, always


class CordonedDevice(Record, frozen=True, kw_only=True):
    """Of spec.cordonedDevices and status.rememberedCordons."""

    id: str = always(str)
    reason: str = ""
    by: str = ""
    at: str = ""


class NodeDeviceSpec(Record, frozen=True, kw_only=True):
    node_name: str
    resource_name: str
    cordoned_devices: list[CordonedDevice] = []


class EndpointStatus(Record, frozen=True, kw_only=True):
    state: str = always(str)
    pre_start_required: bool = always(bool)
    get_preferred_allocation_available: bool = always(bool)
    since: str = always(str)


class AgentStatus(Record, frozen=True, kw_only=True):
    """delivery: how devices reach containers; "" where the agent does not know. runtime: the same, as earlier releases have it."""

    version: str = always(str)
    delivery: str = ""
    runtime: str = always(str)
    served_by: str = always(str)

    @property
    def known_delivery(self) -> str:
        """The field of an agent of this release or of the one before."""
        return self.delivery or self.runtime


class PartRulesStatus(Record, frozen=True, kw_only=True):
    """sm_percent: None where containers are not limited."""

    placement: str = always(str)
    choice: str = always(str)
    containers: str = always(str)
    advertise: str = always(str)
    sm_percent: int | None = None
    largest_available: int = always(int)


class PartCounts(Record, frozen=True):
    """Counts of one physical device.

    total: listed or held. allocated: held, also by a pod that has ended. available: a pod could get them now.
    """

    total: int = always(int)
    healthy: int = always(int)
    allocated: int = always(int)
    available: int = always(int)


class DeviceTaint(Record, frozen=True, kw_only=True):
    """A taint of a DRA driver's device. effect: None, NoSchedule or NoExecute. since: "" if the driver gives no time."""

    key: str = always(str)
    value: str = ""
    effect: str = always(str)
    since: str = ""

    @property
    def is_exclusive(self) -> bool:
        """Whether only pods that tolerate it may get the device."""
        return self.effect in ("NoSchedule", "NoExecute")


class DeviceStatus(Record, frozen=True, kw_only=True):
    """presence: Present or Missing; "" for a physical device with parts that is present. parts: None for a device that has none.

    reason, message: "" and None while it is healthy, and while its plugin is not connected.
    """

    id: str
    health: str = always(str)
    presence: str = ""
    reason: str = ""
    message: str | None = None
    parts: PartCounts | None = None
    since: str = always(str)
    cordoned_since: str = ""
    cordoned_by: str = ""
    numa_nodes: list[int] = []
    attributes: dict[str, str] = {}
    taints: list[DeviceTaint] = []

    @property
    def is_healthy(self) -> bool:
        """Whether its plugin reports it so; whether one of its parts is, if it has parts."""
        return self.health == "Healthy"


class HeldParts(Record, frozen=True):
    """Parts of one physical device that a container holds.

    numbers: ranges. sep: between parent and number in the IDs of the parts. See nodedevice_api.parts.
    """

    parent: str
    parts: int
    numbers: str = always(str)
    sep: str = OLD_SEPARATOR


class ClaimedDevice(Record, frozen=True, kw_only=True):
    """Facts from a claim about one of its devices, beyond its name. A device is listed once for each of its shares.

    share_id: "" unless the device is shared. consumed_capacity: quantities by name. extended_resource: the name that the
    pod requested, if it did not name the claim itself.
    """

    id: str
    share_id: str = field(name="shareID", default="")
    consumed_capacity: dict[str, str] = {}
    admin_access: bool = False
    extended_resource: str = ""


class ClaimStatus(Record, frozen=True, kw_only=True):
    """The ResourceClaim, in the pod's namespace, that gives a container devices of a DRA driver.

    uid: "" if the claim was not read. devices: only devices with facts, sorted by ID and share.
    """

    name: str
    uid: str = ""
    devices: list[ClaimedDevice] = []


class AllocationStatus(Record, frozen=True, kw_only=True):
    """What one container holds, of a DRA driver by one claim. since: "" for parts. device_ids: of whole devices."""

    namespace: str = always(str)
    name: str = always(str)
    pod_uid: str = field(name="podUID")
    container: str
    since: str = ""
    parts: list[HeldParts] = []
    device_ids: list[str] = field(name="deviceIDs", default_factory=list)
    omitted: int = field(name="deviceIDsOmitted", default=0)
    releasing: bool = False
    not_injected: bool = False
    claim: ClaimStatus | None = None


class Waiting(Record, frozen=True, kw_only=True):
    """A container that requested the resource and does not have it yet. not_injected: it runs all the same. final: it gets none."""

    namespace: str = always(str)
    name: str = always(str)
    pod_uid: str = field(name="podUID")
    container: str
    reason: str
    message: str = always(str)
    since: str = always(str)
    not_injected: bool = False
    final: bool = False


class ConditionStatus(Record, frozen=True, kw_only=True):
    """observed_generation: 0 in a condition of an agent."""

    type: str
    status: str
    reason: str = always(str)
    message: str = always(str)
    last_transition_time: str = always(str)
    observed_generation: int = 0


class NodeDeviceStatus(Record, frozen=True, kw_only=True):
    """total, endpoint, agent: None if no agent has written a status. parts: None if the devices have no parts.

    driver, pool: of DRA, as in the ResourceSlices; "" for others. waiting_pods: of how many pods the list has containers,
    or would have, were it longer.
    """

    total: int | None = None
    healthy: int = always(int)
    cordoned: int = always(int)
    allocated: int = always(int)
    releasing: int = always(int)
    reserved: int = always(int)
    available: int = always(int)
    endpoint: EndpointStatus | None = None
    agent: AgentStatus | None = None
    driver: str = ""
    pool: str = ""
    parts: PartRulesStatus | None = None
    devices: list[DeviceStatus] = always(list)
    devices_omitted: int = always(int)
    allocations: list[AllocationStatus] = always(list)
    allocations_omitted: int = always(int)
    waiting: list[Waiting] = always(list)
    waiting_pods: int = 0
    remembered_cordons: list[CordonedDevice] = always(list)
    conditions: list[ConditionStatus] = always(list)
