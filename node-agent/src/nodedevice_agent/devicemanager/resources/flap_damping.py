"""Flap damping: a device whose health or presence in the list keeps changing counts as unhealthy until it is stable.

The kubelet has no such feature. A damped device stays in the list, so that no number jumps. The first changes take effect at once,
so a real failure is never delayed. Only the plugin's reports count: the end of its connection is not a change of a device.

Each device is counted by itself, unless a list changes very many: that counts as one change of all of them. A list therefore costs
the event loop the same few milliseconds for any number of changed devices.
"""

from collections.abc import Iterator, KeysView
from itertools import chain, islice, takewhile

from msgspec import Struct, structs

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices

# Changes of one list that are counted per device.
MOST_AT_ONCE = 1024
# Limit of damped devices, and of those with recent changes; further devices are not damped until others leave.
_MOST_KEPT = 4096
# stands for an ID in a change of very many devices at once
_ALL = ""


class FlapDampingLimits(Struct, frozen=True):
    """Damp a device after this many changes within window_seconds, until it has not changed for quiet_seconds; 0: never."""

    changes: int = 3
    window_seconds: float = 10.0
    quiet_seconds: float = 10.0


class _Damped(Struct):
    """absent: the device of the last list, marked unhealthy, while the plugin does not list it."""

    changes: int
    until: float
    absent: Device | None = None


class FlapDamping(Struct, eq=False):
    """The recent changes of a resource's devices."""

    limits: FlapDampingLimits
    _name: str
    _deadlines: Deadlines
    # Limits the memory for a plugin that keeps listing new devices: twice its longest list.
    _most_kept: int = 0
    _recent: dict[str, list[float]] = {}
    # in the order in which they end
    _damped: dict[str, _Damped] = {}

    def clear(self) -> None:
        self._most_kept = 0
        self._recent.clear()
        self._damped.clear()
        self._deadlines.set("damping", self._name, None)

    @property
    def damped(self) -> KeysView[str]:
        """IDs of the devices that are damped one by one and count as unhealthy; a live view."""
        return self._damped.keys()

    @property
    def is_of_all(self) -> bool:
        return _ALL in self._damped

    def has(self, device_id: str) -> bool:
        return device_id in self._damped or _ALL in self._damped

    def record(self, before: ListedDevices, after: ListedDevices, now: float) -> None:
        """Record the changes between two lists of the plugin. A device that was not listed lately is not a change."""
        if not self.limits.changes:
            return
        self.expire(now)
        self._most_kept = min(max(self._most_kept, 2 * len(after.devices)), _MOST_KEPT)
        changes = list(islice(self._changes(before, after), MOST_AT_ONCE + 1))
        for device_id in changes if len(changes) <= MOST_AT_ONCE else [_ALL]:
            self._changed(device_id, now)
        for device_id, damped in self._damped.items():
            if device_id in after.devices:
                damped.absent = None
            elif device_id in before.devices:
                damped.absent = structs.replace(before.devices[device_id], healthy=False)
        if self._damped:
            self._deadlines.set("damping", self._name, self.next_deadline())

    def _changes(self, before: ListedDevices, after: ListedDevices) -> Iterator[str]:
        was_sick, is_sick = frozenset(before.unhealthy_ids), frozenset(after.unhealthy_ids)
        yield from (i for i in after.unhealthy_ids if i not in was_sick and i in before.devices)
        yield from (i for i in before.unhealthy_ids if i not in is_sick and i in after.devices)
        if before.ids != after.ids:
            yield from before.devices.keys() - after.devices.keys()
            # only of devices that are known here
            yield from [i for i in chain(self._recent, self._damped) if i in after.devices and i not in before.devices]

    def with_absent(self, listed: ListedDevices) -> ListedDevices:
        """The plugin's list, and the damped devices that it has left out."""
        absent = {i: damped.absent for i, damped in self._damped.items() if damped.absent and i not in listed.devices}
        return listed.with_unhealthy(absent) if absent else listed

    def expire(self, now: float) -> bool:
        """Time has passed. Returns whether damping ended for a device; its reported health counts again."""
        ended = list(takewhile(lambda device_id: self._damped[device_id].until <= now, self._damped))
        for device_id in ended:
            del self._damped[device_id]
        if ended:
            self._deadlines.set("damping", self._name, self.next_deadline())
        return bool(ended)

    def next_deadline(self) -> float | None:
        return next(iter(self._damped.values())).until if self._damped else None

    def message(self, device_id: str) -> str:
        """Why a damped device counts as unhealthy. The number is rounded down, so that not every change writes the status."""
        changes = (self._damped.get(device_id) or self._damped[_ALL]).changes
        rounded = max(self.limits.changes, 10 ** (len(str(changes)) - 1))
        return (
            f"its health changed, or it left the list or came back, {rounded} times or more within a short time; "
            f"it counts as unhealthy until it has not changed for {self.limits.quiet_seconds:g} s"
        )

    def _changed(self, device_id: str, now: float) -> None:
        damped = self._damped.pop(device_id, None)
        if damped is not None:
            damped.changes += 1
            damped.until = now + self.limits.quiet_seconds
            self._damped[device_id] = damped
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
