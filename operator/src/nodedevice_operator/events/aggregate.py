"""Devices counted together, and the sentence about them: a few by their IDs, the rest as a number."""

from dataclasses import dataclass
from typing import Final

# How many device IDs a sentence names; the rest is a number.
_NAMED_DEVICES: Final = 5


@dataclass(frozen=True, slots=True)
class DeviceAggregate:
    """Devices of one resource on one node with the same transition; `reasons` are those of the unhealthy ones.

    of_pod: for the pod that holds them, all of them. unnamed: how many more there are that the NodeDevice only counts.
    """

    resource: str
    node: str
    device_ids: frozenset[str]
    reasons: frozenset[str] = frozenset()
    of_pod: bool = False
    unnamed: int = 0
    is_recovery: bool = False

    def sentence(self) -> str:
        """How many and some of them, such as `2 devices (gpu-0, gpu-1) of vendor.com/gpu on node-a unhealthy (Overheated)`."""
        what = f"{_devices(sorted(self.device_ids), self.unnamed)} of {self.resource} on {self.node}"
        if self.is_recovery:
            return f"{what} healthy again"
        why = f" ({', '.join(sorted(self.reasons))})" if self.reasons else ""
        kept = "; held by this pod until it ends" if self.of_pod else ""
        return f"{what} unhealthy{why}{kept}"

    def may_share(self, other: "DeviceAggregate") -> bool:
        """Whether some device may be in both: where some are only counted, any."""
        return bool(self.unnamed or other.unnamed or self.device_ids & other.device_ids)


def some(device_ids: list[str], unnamed: int = 0) -> str:
    """A few of the IDs and how many more, such as `gpu-0, gpu-1 and 6 more`. unnamed: how many have no ID here."""
    named = ", ".join(device_ids[:_NAMED_DEVICES])
    more = max(len(device_ids) - _NAMED_DEVICES, 0) + unnamed
    return f"{named} and {more} more" if more > 0 else named


def _devices(device_ids: list[str], unnamed: int) -> str:
    number = len(device_ids) + unnamed
    noun = "device" if number == 1 else "devices"
    return f"{number} {noun} ({some(device_ids, unnamed)})" if device_ids else f"{number} {noun}"
