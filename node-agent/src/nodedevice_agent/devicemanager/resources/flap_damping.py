"""Flap damping, which the kubelet does not have: a device whose health keeps changing, or which keeps leaving the list and coming
back, counts as unhealthy until it has not changed for a while. Meanwhile it stays in the list, so that no number jumps.

The first changes take effect at once, so a real failure is never delayed. Only the return to healthy is damped, and with it
writes to the API and the allocation of a device that is about to fail again. Only the plugin's reports count: the end of its
connection is no change of a device.
"""

from collections.abc import KeysView
from dataclasses import replace
from itertools import chain

from msgspec import Struct, structs

from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices


class FlapDampingLimits(Struct, frozen=True):
    """Damp a device after this many changes, in either direction, within window_seconds; 0 disables damping.

    quiet_seconds: damping ends after this time without a change.
    """

    changes: int = 3
    window_seconds: float = 10.0
    quiet_seconds: float = 10.0


class _Damped(Struct):
    """absent: the device as it was listed last, but not healthy, while the plugin does not list it."""

    changes: int
    until: float
    absent: Device | None = None


class FlapDamping:
    """The recent changes of one resource's devices. Mutable; changed only by record() and expire()."""

    def __init__(self, limits: FlapDampingLimits) -> None:
        self.limits = limits
        # Bounds what is kept of a plugin that lists ever new devices: twice its longest list.
        self._most_kept = 0
        self._recent: dict[str, list[float]] = {}
        self._damped: dict[str, _Damped] = {}
        # IDs of the damped devices, which count as unhealthy whatever is reported; a live view
        self.damped: KeysView[str] = self._damped.keys()

    def record(self, before: ListedDevices, after: ListedDevices, now: float) -> None:
        """A list replaced another, both as the plugin sent them. A device that was not listed lately is no change."""
        if not self.limits.changes:
            return
        self.expire(now)
        self._most_kept = max(self._most_kept, 2 * len(after.devices))
        failed = filter(before.is_listed_healthy, after.unhealthy_ids)
        recovered = filter(after.is_listed_healthy, before.unhealthy_ids)
        removed = before.devices.keys() - after.devices.keys()
        added = (after.devices.keys() - before.devices.keys()) & (self._recent.keys() | self._damped.keys())
        for device_id in chain(failed, recovered, removed, added):
            self._changed(device_id, now)
        for device_id in added & self._damped.keys():
            self._damped[device_id].absent = None
        for device_id in removed & self._damped.keys():
            self._damped[device_id].absent = structs.replace(before.devices[device_id], healthy=False)

    def with_absent(self, listed: ListedDevices) -> ListedDevices:
        """The plugin's list, and the damped devices that it has left out."""
        absent = {i: damped.absent for i, damped in self._damped.items() if damped.absent and i not in listed.devices}
        if not absent:
            return listed
        return replace(listed, devices={**listed.devices, **absent})

    def expire(self, now: float) -> bool:
        """Time has passed. Returns whether damping ended for a device; its reported health counts again."""
        quiet = [device_id for device_id, damped in self._damped.items() if damped.until <= now]
        for device_id in quiet:
            del self._damped[device_id]
        return bool(quiet)

    def next_deadline(self) -> float | None:
        return min((damped.until for damped in self._damped.values()), default=None)

    def message(self, device_id: str) -> str:
        """Why a damped device counts as unhealthy.

        Contains the number of changes rounded down, so that not every further change writes the status.
        """
        changes = self._damped[device_id].changes
        rounded = max(self.limits.changes, 10 ** (len(str(changes)) - 1))
        return (
            f"its health changed, or it left the list or came back, {rounded} times or more within a short time; "
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
        if len(recent) < self.limits.changes or len(self._damped) >= self._most_kept:
            self._forget_before(horizon)
            self._recent[device_id] = recent[-self.limits.changes :]
        else:
            self._damped[device_id] = _Damped(len(recent), now + self.limits.quiet_seconds)

    def _forget_before(self, horizon: float) -> None:
        """Drop expired changes, and the oldest above the bound. The dictionary is in the order of the latest change."""
        while self._recent:
            oldest = next(iter(self._recent))
            if self._recent[oldest][-1] >= horizon and len(self._recent) < self._most_kept:
                return
            del self._recent[oldest]
