"""The records of one reading of the kubelet, and the interface of its subscribers.

None stands for an unreadable part; another field has the cause. An empty value would make a subscriber free devices in use.
"""

import math
from collections.abc import Collection, Mapping

from msgspec import Struct, field

from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow
from nodedevice_agent.devicemanager.attribution.stage import Attribution
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

# by device ID: its NUMA nodes, sorted
DevicesByID = Mapping[str, tuple[int, ...]]


class HealthyDevices(Struct, frozen=True, gc=False):
    """By resource name. omitted: how many more healthy devices it has, without IDs. digests: to detect unchanged resources."""

    devices: Mapping[str, DevicesByID] = field(default_factory=dict)
    omitted: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


NO_DEVICES = HealthyDevices()
NO_HOLDERS: Mapping[str, Collection[str]] = {}


class ClaimRow(Struct, frozen=True, gc=False):
    """A device of a DRA driver in a claim of a container's pod. share_id: "" if not shared. cdi_ids: in the driver's order."""

    namespace: str
    name: str
    container: str
    claim: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    cdi_ids: tuple[str, ...] = ()


class HeldByPod(Struct, frozen=True, gc=False):
    """The devices of one pod, from the kubelet's device manager and from claims."""

    rows: tuple[PodResourcesRow, ...] = ()
    claim_rows: tuple[ClaimRow, ...] = ()


# pods with devices only
RowsByPod = dict[PodName, HeldByPod]


class CheckpointReading(Struct, frozen=True):
    """checkpoint: empty if the kubelet has not written one yet; None, with the problem, if it cannot be used.

    unread: sizes of the responses that are too long; the checkpoint has empty ones instead. omitted: see HealthyDevices.
    """

    checkpoint: Checkpoint | None
    problem: str = ""
    unread: Mapping[AllocationKey, int] = field(default_factory=dict)
    omitted: Mapping[str, int] = field(default_factory=dict)


class PodReading(Struct, frozen=True):
    """Rows of all active pods, with the matching checkpoint; None, with the problem, if the kubelet does not respond.

    is_listed: whether this reading called List, which frees the devices of ended pods. devices: healthy devices by resource name;
    None if no subscriber needs them, or, with devices_problem, if the kubelet does not list them. omitted: see HealthyDevices.
    claim_rows: undefined without rows.
    """

    checkpoint: Checkpoint | None
    rows: tuple[PodResourcesRow, ...] | None
    problem: str = ""
    is_listed: bool = False
    devices: Mapping[str, DevicesByID] | None = None
    devices_problem: str = ""
    claim_rows: tuple[ClaimRow, ...] = ()
    omitted: Mapping[str, int] = field(default_factory=dict)


class Pace(Struct, frozen=True):
    """A subscriber's needs.

    is_following: gets each write of the checkpoint at once. check_seconds: how old the checkpoint of the others may be.
    list_seconds: maximum time between two calls of List. lists_devices: whether each reading includes the healthy devices.
    """

    is_following: bool = False
    check_seconds: float = 30.0
    list_seconds: float = math.inf
    lists_devices: bool = False


class Subscriber:
    """Gets each reading of the kubelet, in the event loop. Its errors are logged and counted; then it gets the reading again.

    is_outdated: whether it needs newer pod resources; the reader sets it to False when it starts to read them.
    """

    is_outdated = False

    @property
    def pace(self) -> Pace:
        return Pace()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        """The checkpoint has changed, or can no longer be used."""

    def pods_read(self, found: PodReading) -> None:
        """Pod resources were read, for any subscriber."""


class AttributionSubscriber(Subscriber):
    """A subscriber that is outdated whenever its attribution is."""

    _attribution: Attribution

    @property
    def is_outdated(self) -> bool:
        return self._attribution.is_outdated

    @is_outdated.setter
    def is_outdated(self, value: bool) -> None:
        self._attribution.is_outdated = value
