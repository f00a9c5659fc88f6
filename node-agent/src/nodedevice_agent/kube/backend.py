"""How devices reach containers, as far as a NodeDevice shows it; and the backend where they do not."""

from typing import Protocol

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.snapshot import Snapshot

_ADVERTISED = (
    "Unknown",
    Reason.RUNTIME_NONE,
    "devices are advertised and recorded, and containers get nothing (--runtime none --advertise-without-injection)",
)


class Backend(Protocol):
    """How devices reach containers, as far as it decides what is published."""

    @property
    def is_settled(self) -> bool:
        """False while the backend does not know its own state yet: the last published status stays."""

    @property
    def notes(self) -> str:
        """A problem that an administrator should know of; empty when there is none."""

    def resource_changed(self, resource_name: str) -> None:
        """The resource's devices or allocations may have changed."""

    def resource_forgotten(self, resource_name: str) -> None:
        """The resource is not known any more."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether a container runs without this resource that it requested."""

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        """Status, reason and message of the condition Injectable; None where nothing is injected."""


class RecordOnly:
    """The backend of --runtime none: devices are counted and recorded, and do not reach containers.

    advertises: whether the administrator wants them advertised all the same.
    """

    is_settled = True
    notes = ""

    def __init__(self, *, advertises: bool = False) -> None:
        self._advertises = advertises

    def resource_changed(self, resource_name: str) -> None:
        """Nobody else is served."""

    def resource_forgotten(self, resource_name: str) -> None:
        """Nothing is remembered."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        return False

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        return _ADVERTISED if self._advertises else None
