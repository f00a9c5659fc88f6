"""Devices whose health will not settle: after a few changes they count as unhealthy until they have been quiet for a while.

The first changes go through at once, so an honest failure is never held back; what is damped is only the way back to healthy,
and with it the writes to the API and the pods that would be given a device that is about to fail again.
Of what a plugin reports alone: the end of its connection is no change of a device's health. The kubelet has nothing like it.
"""

from collections.abc import KeysView
from dataclasses import dataclass
from itertools import chain

from nodedevice_agent.devicemanager.devices import ListedDevices


@dataclass(frozen=True, slots=True)
class FlapDampingLimits:
    """changes: so many within window_seconds, in either direction, damp a device until quiet_seconds pass without one; 0: never."""

    changes: int = 3
    window_seconds: float = 10.0
    quiet_seconds: float = 10.0


@dataclass(slots=True)
class _Damped:
    changes: int
    until: float


class FlapDamping:
    """The recent changes of one resource's devices. Mutable; changed by record() and expire() alone."""

    def __init__(self, limits: FlapDampingLimits) -> None:
        self.limits = limits
        self._recent: dict[str, list[float]] = {}
        self._damped: dict[str, _Damped] = {}

    def record(self, before: ListedDevices, after: ListedDevices, now: float) -> None:
        """A list replaced another. A device that came, went, or stayed as it was has not changed."""
        if not self.limits.changes:
            return
        self.expire(now)
        failed = filter(before.is_listed_healthy, after.unhealthy_ids)
        came_back = filter(after.is_listed_healthy, before.unhealthy_ids)
        for device_id in chain(failed, came_back):
            self._changed(device_id, now)

    def expire(self, now: float) -> bool:
        """Time has passed. Returns whether a device has been quiet long enough and counts as it is reported again."""
        quiet = [device_id for device_id, damped in self._damped.items() if damped.until <= now]
        for device_id in quiet:
            del self._damped[device_id]
        return bool(quiet)

    def next_deadline(self) -> float | None:
        return min((damped.until for damped in self._damped.values()), default=None)

    @property
    def damped(self) -> KeysView[str]:
        """IDs of the devices that count as unhealthy whatever is reported of them; a live view."""
        return self._damped.keys()

    def message(self, device_id: str) -> str:
        """Why a damped device counts as unhealthy.

        Says the number of changes rounded down, so that each further change does not write the status anew.
        """
        changes = self._damped[device_id].changes
        said = max(self.limits.changes, 10 ** (len(str(changes)) - 1))
        return (
            f"its health changed {said} times or more within a short time; "
            f"it counts as unhealthy until it has not changed for {self.limits.quiet_seconds:g} s"
        )

    def _changed(self, device_id: str, now: float) -> None:
        damped = self._damped.get(device_id)
        if damped is not None:
            damped.changes += 1
            damped.until = now + self.limits.quiet_seconds
            return
        horizon = now - self.limits.window_seconds
        recent = [time for time in self._recent.pop(device_id, ()) if time >= horizon] + [now]
        if len(recent) < self.limits.changes:
            self._forget_before(horizon)
            self._recent[device_id] = recent
        else:
            self._damped[device_id] = _Damped(len(recent), now + self.limits.quiet_seconds)

    def _forget_before(self, horizon: float) -> None:
        """Drop what no longer matters. The latest change stands last, so only the oldest have to be looked at."""
        while self._recent:
            oldest = next(iter(self._recent))
            if self._recent[oldest][-1] >= horizon:
                return
            del self._recent[oldest]
