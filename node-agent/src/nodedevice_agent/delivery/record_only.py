"""What the administrator of --delivery none gets: devices are counted and recorded, and do not reach containers."""

import asyncio

from nodedevice_api.names import DELIVERY_NONE, Reason

from nodedevice_agent.devicemanager.snapshot import Snapshot

_ADVERTISED = (
    "Unknown",
    Reason.RUNTIME_NONE,
    "devices are advertised and recorded, and containers get nothing (--delivery none --advertise-without-injection)",
)


class RecordOnly:
    """The delivery `none`. advertises: whether the administrator wants the devices advertised all the same."""

    name = DELIVERY_NONE
    is_settled = True
    notes = ""

    def __init__(self, *, advertises: bool = False) -> None:
        self._advertises = advertises

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Nothing goes on."""

    def resource_changed(self, resource_name: str) -> None:
        """Nobody else is served."""

    def resource_forgotten(self, resource_name: str) -> None:
        """Nothing is remembered."""

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        return False

    def injectable(self, now: Snapshot) -> tuple[str, str, str] | None:
        return _ADVERTISED if self._advertises else None
