"""What the operator remembers of each object: the few fields it decides by, never the object.

Two records are equal when they say the same, whatever their resource versions: a heartbeat of a Node changes nothing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_api import names

# A field manager as it stands in managedFields. Ours counts only where it came by server-side apply: another operation
# under the same name is another owner to the API server.
OURS: Final = names.OPERATOR_FIELD_MANAGER
# Stands in where a value is there and managedFields names nobody, as on a Node that was made without any.
UNKNOWN_WRITER: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ExtendedResource:
    """One extended resource as a Node shows it: how many, and who owns the number."""

    capacity: int | None = None
    allocatable: int | None = None
    capacity_owners: frozenset[str] = frozenset()
    allocatable_owners: frozenset[str] = frozenset()

    @property
    def is_present(self) -> bool:
        return self.capacity is not None or self.allocatable is not None

    @property
    def is_capacity_ours(self) -> bool:
        return self.capacity is not None and OURS in self.capacity_owners

    @property
    def is_allocatable_ours(self) -> bool:
        return self.allocatable is not None and OURS in self.allocatable_owners

    @property
    def capacity_strangers(self) -> frozenset[str]:
        return _strangers(self.capacity, self.capacity_owners)

    @property
    def allocatable_strangers(self) -> frozenset[str]:
        return _strangers(self.allocatable, self.allocatable_owners)


NO_RESOURCE: Final = ExtendedResource()


def _strangers(value: int | None, owners: frozenset[str]) -> frozenset[str]:
    if value is None:
        return frozenset()
    return owners - {OURS} if owners else frozenset({UNKNOWN_WRITER})


@dataclass(frozen=True, slots=True)
class Marks:
    """The operator's taint and labels of a Node, as they are or as they should be."""

    is_tainted: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


NO_MARKS: Final = Marks()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A Node: its identity, its extended resources, and what of its taints and labels is the operator's.

    made: when, in the API's own form to the second. Texts of that form sort as their times do.
    """

    name: str
    uid: str
    resource_version: int = field(compare=False)
    resources: Mapping[str, ExtendedResource]
    marks: Marks = NO_MARKS
    made: str = ""

    @property
    def key(self) -> str:
        return self.name

    @property
    def node(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Device:
    """A device that somebody holds or that is broken; a free healthy one is only counted."""

    health: str
    reason: str
    is_missing: bool
    numa_nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container of one pod holds of the resource. not_injected: it runs, and was not given these devices."""

    namespace: str
    name: str
    pod_uid: str
    container: str
    device_ids: tuple[str, ...]
    omitted: int
    is_releasing: bool
    not_injected: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that asked for the resource and did not get it yet. not_injected: it runs all the same."""

    namespace: str
    name: str
    pod_uid: str
    container: str
    reason: str
    message: str
    not_injected: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it is stored. `since` is the API's own text: it is handed back, never computed with."""

    status: str
    reason: str
    message: str
    since: str
    observed_generation: int


@dataclass(frozen=True, slots=True)
class NodeDeviceRecord:
    """A NodeDevice. `has_status` is False until its agent has said anything, whatever others have written into its status.

    runtime: how devices reach containers there.
    edited_by: who else has written what is the agent's or the operator's in its status, as field managers.
    """

    name: str
    uid: str
    generation: int
    resource_version: int = field(compare=False)
    node: str
    resource: str
    owner_uid: str | None
    has_status: bool = False
    total: int = 0
    healthy: int = 0
    cordoned: int = 0
    allocated: int = 0
    releasing: int = 0
    reserved: int = 0
    available: int = 0
    endpoint: str | None = None
    runtime: str = ""
    devices: Mapping[str, Device] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    devices_omitted: int = 0
    allocations: tuple[Allocation, ...] = ()
    allocations_omitted: int = 0
    waiting: tuple[Waiting, ...] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    edited_by: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        return self.name

    def is_condition(self, kind: str, status: str) -> bool:
        """Whether the condition of that type is stored with that status."""
        stored = self.conditions.get(kind)
        return stored is not None and stored.status == status

    def unhealthy(self) -> frozenset[str]:
        return frozenset(device_id for device_id, device in self.devices.items() if device.health == "Unhealthy")

    @property
    def unlisted_unhealthy(self) -> int:
        """How many of the devices that the list leaves out are not healthy."""
        broken = self.total - self.healthy - len(self.unhealthy())
        return min(max(broken, 0), self.devices_omitted)


@dataclass(frozen=True, slots=True)
class PodDeviceRecord:
    """A PodDevice: whose it is, and a fingerprint of all that the operator writes into one."""

    namespace: str
    name: str
    uid: str
    resource_version: int = field(compare=False)
    node: str
    pod_uid: str
    fingerprint: str

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What is asked of a pod: which one it is, where it runs ("" while it is not bound), and whether it is about to end."""

    uid: str
    node: str
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """An agent's Lease. `renewed` is the API's own text; only whether it changes is looked at.

    refusals: registrations of device plugins that the agent refused lately, in its words.
    """

    renewed: str
    duration_seconds: int
    refusals: tuple[str, ...] = ()
