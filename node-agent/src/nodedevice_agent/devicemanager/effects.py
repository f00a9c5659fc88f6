"""What the device manager wants done. It returns these; the edges carry them out and bring back what came of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallPreferred:
    """Call GetPreferredAllocation; answer with DeviceManager.preferred(ticket, ...)."""

    ticket: int
    resource_name: str
    endpoint: int
    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class CallAllocate:
    """Call Allocate; answer with DeviceManager.allocated(ticket, ...) or allocate_failed(ticket, ...)."""

    ticket: int
    resource_name: str
    endpoint: int
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallPreStart:
    """Call PreStartContainer; answer with DeviceManager.pre_started(ticket, ...) or pre_start_failed(ticket, ...)."""

    ticket: int
    resource_name: str
    endpoint: int
    container: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write DeviceManager.checkpoint(). durable: an allocation changed, so nothing may be published before it is on disk."""

    durable: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """The snapshot of this resource changed, or may have."""

    resource_name: str


@dataclass(frozen=True, slots=True)
class UnknownResource:
    """A pod bound here asks for a name that no plugin ever registered with us. Said once; served if one comes."""

    pod: str
    container: str
    resource_name: str


Effect = CallPreferred | CallAllocate | CallPreStart | SaveCheckpoint | Publish | UnknownResource
