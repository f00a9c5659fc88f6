"""`--delivery none`: devices are counted and recorded, but do not reach containers."""

from nodedevice_api.names import Reason

from nodedevice_agent.delivery.contract import Delivery
from nodedevice_agent.devicemanager.snapshot import Snapshot

_ADVERTISED = (
    "Unknown",
    Reason.RUNTIME_NONE,
    "devices are advertised and recorded, and containers get nothing (--delivery none --advertise-without-injection)",
)


class RecordOnly(Delivery):
    """The delivery `none`. advertises: whether the devices are advertised nevertheless."""

    def __init__(self, *, advertises: bool = False) -> None:
        self._advertises = advertises

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        return _ADVERTISED if self._advertises else None
