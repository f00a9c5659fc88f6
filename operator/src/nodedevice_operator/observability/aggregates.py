"""What several Events about one resource on one node are merged by, so that many devices, or many changes, are one Event."""

from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias

from nodedevice_api import names

UNHEALTHY: Final = "unhealthy"
HEALTHY_AGAIN: Final = "healthy again"
CORDONED: Final = "cordoned"
UNCORDONED: Final = "uncordoned"

# How many device IDs a sentence names; the rest is a number.
_NAMED_DEVICES: Final = 5
# For an Event that waits: an agent may report thousands of devices at once, each for a reason of its own.
_MOST_DEVICES: Final = 64
_MOST_REASONS: Final = 8
_EVERY_DEVICE: Final = frozenset({names.ALL_DEVICES, names.ALL_DEVICES_WORD})


@dataclass(frozen=True, slots=True)
class DeviceAggregate:
    """Devices with the same transition, `became`. unnamed: only counted ones. by: who cordoned them. of_pod: the pod has all."""

    resource: str
    node: str
    device_ids: frozenset[str]
    reasons: frozenset[str] = frozenset()
    of_pod: bool = False
    unnamed: int = 0
    became: str = UNHEALTHY
    by: frozenset[str] = frozenset()

    def sentence(self) -> str:
        """How many and some of them, such as `2 devices (gpu-0, gpu-1) of vendor.com/gpu on node-a unhealthy (Overheated)`."""
        what = f"{_devices(sorted(self.device_ids), self.unnamed)} of {self.resource} on {self.node}"
        why = f" ({', '.join(sorted(self.reasons))})" if self.reasons else ""
        kept = "; in use by this pod until it ends" if self.of_pod and self.became == UNHEALTHY else ""
        return f"{what} {self.became}{self._author()}{why}{kept}"

    def _author(self) -> str:
        # who uncordoned them is unknown
        by = some(sorted(self.by))
        if self.became == UNCORDONED:
            return f" (cordoned by {by})" if by else ""
        return f" by {by}" if by else ""

    def bounded(self) -> Self:
        """A copy with fewer device IDs: the others are only counted."""
        if len(self.device_ids) <= _MOST_DEVICES:
            return self
        return replace(
            self,
            device_ids=frozenset(sorted(self.device_ids)[:_MOST_DEVICES]),
            reasons=frozenset(sorted(self.reasons)[:_MOST_REASONS]),
            unnamed=self.unnamed + len(self.device_ids) - _MOST_DEVICES,
            by=frozenset(sorted(self.by)[:_MOST_REASONS]),
        )

    def with_more(self, other: "DeviceAggregate") -> "DeviceAggregate":
        return replace(
            self,
            device_ids=self.device_ids | other.device_ids,
            reasons=self.reasons | other.reasons,
            unnamed=self.unnamed + other.unnamed,
            by=self.by | other.by,
        )

    def may_share(self, other: "DeviceAggregate") -> bool:
        """Whether some device may be in both; always if one has devices without ID."""
        return bool(self.unnamed or other.unnamed or self.device_ids & other.device_ids)


@dataclass(frozen=True, slots=True)
class NumberAggregate:
    """None: the Node lacks the name. why: the reason in one word, if the number differs from the agent's report."""

    resource: str
    node: str
    before: int | None
    after: int | None
    why: str = ""

    def sentence(self) -> str:
        """Such as `vendor.com/gpu on node-a: 7 devices advertised, 8 before`; "" if the number is unchanged."""
        if self.before == self.after:
            return ""
        why = f" ({self.why})" if self.why else ""
        if self.after is None:
            return f"{self.resource} on {self.node}: no longer advertised, {self.before} before{why}"
        noun = "device" if self.after == 1 else "devices"
        before = "" if self.before is None else f", {self.before} before"
        return f"{self.resource} on {self.node}: {self.after} {noun} advertised{before}{why}"

    def bounded(self) -> Self:
        return self

    def with_later(self, other: "NumberAggregate") -> "NumberAggregate":
        """Merges both: the number before this one and after `other`."""
        return replace(self, after=other.after, why=other.why)


Aggregate: TypeAlias = DeviceAggregate | NumberAggregate


def some(device_ids: list[str], unnamed: int = 0) -> str:
    """A few of the IDs and how many more, such as `gpu-0, gpu-1 and 6 more`. unnamed: how many have no ID here."""
    named = ", ".join(device_ids[:_NAMED_DEVICES])
    more = max(len(device_ids) - _NAMED_DEVICES, 0) + unnamed
    return f"{named} and {more} more" if more > 0 else named


def _devices(device_ids: list[str], unnamed: int) -> str:
    if not _EVERY_DEVICE.isdisjoint(device_ids):
        return "all devices"
    number = len(device_ids) + unnamed
    noun = "device" if number == 1 else "devices"
    return f"{number} {noun} ({some(device_ids, unnamed)})" if device_ids else f"{number} {noun}"
