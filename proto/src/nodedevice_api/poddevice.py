"""PodDevice: the devices of one pod, in the API's form. The operator writes it, in one apply.

`crds/poddevices.yaml` says what each field means, and has its bounds and rules. Pure.
"""

from msgspec import field

from nodedevice_api.nodedevice import DeviceTaint
from nodedevice_api.wire import Record, always


class PodDeviceSpec(Record, frozen=True):
    node_name: str = always(str)
    pod_uid: str = field(name="podUID", default_factory=str)


class HeldDevice(Record, frozen=True):
    """`health` is Unknown if the NodeDevice does not show it.

    parts, of: how many parts of it the container holds, of how many; 0 without parts. claim, share_id: of DRA.
    extended_resource: the name that the pod requested, if it did not name the claim itself. taints: as in the NodeDevice.
    """

    id: str
    health: str = ""
    numa_nodes: tuple[int, ...] = ()
    parts: int = 0
    of: int = 0
    claim: str = ""
    share_id: str = field(name="shareID", default="")
    extended_resource: str = ""
    taints: tuple[DeviceTaint, ...] = ()


class HeldResource(Record, frozen=True):
    """What a container holds of one resource, sorted by device ID, claim and share. driver, pool: of DRA; "" for others."""

    name: str = field(name="resourceName")
    driver: str = ""
    pool: str = ""
    devices: tuple[HeldDevice, ...] = always(tuple)


class HoldingContainer(Record, frozen=True):
    """A container and its resources, sorted by name."""

    name: str
    resources: tuple[HeldResource, ...] = always(tuple)


class PodDeviceStatus(Record, frozen=True):
    """resources, devices, health: one line each, for people."""

    resources: str = always(str)
    devices: str = always(str)
    health: str = always(str)
    containers: tuple[HoldingContainer, ...] = always(tuple)
