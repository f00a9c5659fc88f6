"""The checkpoint's checksum: FNV-1a, 32 bits, over the text that Go's spew prints of the data.

In pieces, so that whoever writes the same entries again and again sums only what is new: the hash goes on from the last entry
that has not changed. An interpreter takes some 50 ns a byte, and a node full of pods has hundreds of kilobytes of this text.
Source: kubelet pkg/kubelet/checkpointmanager/checksum (FNV-1a over spew's %#v of the checkpoint's data).
"""

import base64
from collections.abc import Mapping
from typing import Any

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF
_BEFORE_ENTRIES = "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
_BEFORE_REGISTERED = " RegisteredDevices:(map[string][]string)"


def checksum(data: Mapping[str, Any]) -> int:
    """Of the `Data` object, as it is in JSON. Raises KeyError, TypeError, ValueError or AttributeError for what is none."""
    entries = data["PodDeviceEntries"]
    value = opening(is_nil=entries is None)
    for position, entry in enumerate(entries or ()):
        value = after_entry(value, entry, is_first=position == 0)
    return Closing(data["RegisteredDevices"], is_nil=entries is None).after(value)


def opening(*, is_nil: bool) -> int:
    """The hash of what stands before the first entry. is_nil: there is no list of entries, not even an empty one."""
    return _fnv1a(_octets(_BEFORE_ENTRIES + ("<nil>" if is_nil else "[")), _OFFSET)


def after_entry(value: int, entry: Mapping[str, Any], *, is_first: bool) -> int:
    """The hash after an entry of PodDeviceEntries. value: the hash before it."""
    return _fnv1a(_octets(("" if is_first else " ") + _entry(entry)), value)


class Closing:
    """What stands behind the last entry: all the device IDs of the node, which change seldom and have to be summed last.

    A hash goes into every step as (value ^ byte) * prime, and a byte reaches only its low eight bits: two values with the same
    low byte are changed by the same amounts, and their difference only grows by a factor. So one sum serves them all.
    """

    def __init__(self, registered: Mapping[str, Any] | None, *, is_nil: bool) -> None:
        self._octets = _octets(("" if is_nil else "]") + _BEFORE_REGISTERED + _registered(registered) + "}")
        self._factor = pow(_PRIME, len(self._octets), _MASK + 1)
        self._sums: dict[int, int] = {}

    def after(self, value: int) -> int:
        """The checksum. value: the hash before."""
        low = value & 0xFF
        if low not in self._sums:
            self._sums[low] = _fnv1a(self._octets, low)
        return (self._sums[low] + (value - low) * self._factor) & _MASK


def _fnv1a(octets: bytes, value: int) -> int:
    prime, mask = _PRIME, _MASK
    for octet in octets:
        value = ((value ^ octet) * prime) & mask
    return value


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _entry(entry: Mapping[str, Any]) -> str:
    ids = entry["DeviceIDs"]
    if isinstance(ids, list):
        devices = f"([]string)[{' '.join(ids)}]"
    else:
        nodes = " ".join(f"{node}:[{' '.join(ids[str(node)])}]" for node in sorted(map(int, ids)))
        devices = f"(checkpoint.DevicesPerNUMA)map[{nodes}]"
    response = entry["AllocResp"]
    octets = "<nil>" if response is None else f"[{' '.join(map(str, base64.b64decode(response, validate=True)))}]"
    return (
        f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']}"
        f" ResourceName:(string){entry['ResourceName']} DeviceIDs:{devices} AllocResp:([]uint8){octets}}}"
    )


def _registered(registered: Mapping[str, Any] | None) -> str:
    if registered is None:
        return "<nil>"
    ids = (f"{name}:[{' '.join(registered[name])}]" for name in sorted(registered, key=str.encode))
    return f"map[{' '.join(ids)}]"
