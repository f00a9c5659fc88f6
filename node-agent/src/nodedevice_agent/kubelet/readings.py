"""What is read of the kubelet, and who gets it: records of one reading, and what a subscriber is.

What cannot be read is None with the cause beside it, and never empty: who takes it for empty frees devices that pods hold.
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
    """By resource name. omitted: how many more a resource has, which are known by their number alone.

    digests: by which the next reading finds that a resource is as before.
    """

    devices: Mapping[str, DevicesByID] = field(default_factory=dict)
    omitted: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


NO_DEVICES = HealthyDevices()
NO_HOLDERS: Mapping[str, Collection[str]] = {}


class ClaimRow(Struct, frozen=True, gc=False):
    """A device of a DRA driver that a container has by a ResourceClaim in its pod's namespace, as a kubelet shows it since 1.36.

    The kubelet shows each container all devices of a claim, also those of requests that the container does not name. share_id: ""
    where the device is not shared. cdi_ids: its own CDI names, in the driver's order.
    """

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
    """What one pod has, by the kubelet's device manager and by claims."""

    rows: tuple[PodResourcesRow, ...] = ()
    claim_rows: tuple[ClaimRow, ...] = ()


# of each pod that has devices
RowsByPod = dict[PodName, HeldByPod]


class CheckpointReading(Struct, frozen=True):
    """checkpoint: empty where the kubelet has written none yet; None with the problem where it cannot be used.

    unread: responses that are too long, with their size; each is empty in the checkpoint. omitted: see HealthyDevices.
    """

    checkpoint: Checkpoint | None
    problem: str = ""
    unread: Mapping[AllocationKey, int] = field(default_factory=dict)
    omitted: Mapping[str, int] = field(default_factory=dict)


class PodReading(Struct, frozen=True):
    """Rows of all active pods, and with which checkpoint they go; None with the problem where the kubelet does not answer.

    is_listed: whether the kubelet has listed all of them now, which frees the devices of ended pods. devices: the healthy ones by
    resource name; None where nobody asked for them, or with the problem where the kubelet does not list them. omitted: see
    HealthyDevices. claim_rows: without meaning where rows is None.
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
    """What a subscriber needs of the reader.

    is_following: each write of the checkpoint, at once; others have it as of check_seconds ago. list_seconds: pod resources are
    listed at least so often, whatever happens. lists_devices: with each reading, the healthy devices.
    """

    is_following: bool = False
    check_seconds: float = 30.0
    list_seconds: float = math.inf
    lists_devices: bool = False


class Subscriber:
    """Gets each reading of the kubelet, in the event loop. What it raises is logged and counted, and it gets the reading again.

    is_outdated: whether it needs pod resources that are newer than its last ones; the reader sets it to False as it asks for them.
    """

    is_outdated = False

    @property
    def pace(self) -> Pace:
        """Asked for before each reading."""
        return Pace()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        """The kubelet has written another one, or it can no longer be used."""

    def pods_read(self, found: PodReading) -> None:
        """Pod resources were asked for, by whomever."""


class AttributionSubscriber(Subscriber):
    """One that is outdated as its attribution is."""

    _attribution: Attribution

    @property
    def is_outdated(self) -> bool:
        return self._attribution.is_outdated

    @is_outdated.setter
    def is_outdated(self, value: bool) -> None:
        self._attribution.is_outdated = value
