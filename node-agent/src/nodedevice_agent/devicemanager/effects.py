"""Effects: actions that the device manager returns to its host. Their results come back as events."""

from msgspec import Struct


class _Call(Struct, frozen=True):
    """Call a plugin. The response goes to the events of DeviceManager, with the ticket."""

    ticket: int
    resource_name: str
    endpoint: int


class CallPreferred(_Call, frozen=True):
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


class CallAllocate(_Call, frozen=True):
    """pod_uid, container: the owner of the devices. recorded_for: UID of the pod whose record on disk precedes the call, as the
    call is never repeated; "" if calls are retried. A ticket that has become void meanwhile is not sent.
    """

    device_ids: tuple[str, ...]
    pod_uid: str
    container: str
    recorded_for: str = ""


class CallPreStart(_Call, frozen=True):
    container: str
    device_ids: tuple[str, ...]


class SaveCheckpoint(Struct, frozen=True):
    """Write DeviceManager.checkpoint(). durable: an allocation of that pod, or of any ("") changed, so nothing may be published
    before it is on disk.
    """

    durable: bool
    pod_uid: str = ""


class Publish(Struct, frozen=True):
    """The snapshot of this resource may have changed."""

    resource_name: str


class UnknownResource(Struct, frozen=True):
    """A pod on this node requests a resource that no plugin has registered. Returned once; served if one registers."""

    pod: str
    container: str
    resource_name: str


class AssignedParts(Struct, frozen=True):
    """A pod has its devices of a resource whose parts a scheduler assigns. pod: namespace/name. outcome: a metric's label. problem:
    why the assignment is invalid; "" if it is valid.
    """

    pod: str
    resource_name: str
    outcome: str
    problem: str


class TakeList(Struct, frozen=True):
    """The refused list of this connection fits now: read it again; it comes to DeviceManager.listed(...)."""

    resource_name: str
    endpoint: int


PluginCall = CallPreferred | CallAllocate | CallPreStart | TakeList
Report = UnknownResource | AssignedParts
Effect = SaveCheckpoint | Publish | Report | PluginCall
