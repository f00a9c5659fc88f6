"""The checksummed part of a checkpoint: its schema, and the kubelet's checksum over it.

The checksum is 32-bit FNV-1a over the text that Go's spew prints of the data. Python takes some 50 ns a byte, and a full node has
hundreds of kilobytes of this text, so the hash can be continued after any entry that has not changed.
Source: kubelet pkg/kubelet/checkpointmanager/checksum (FNV-1a over spew's %#v), pkg/kubelet/cm/devicemanager/checkpoint.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_OFFSET = 0x811C9DC5
_PRIME = 0x01000193
_MASK = 0xFFFFFFFF


class Entry(msgspec.Struct, frozen=True):
    """One resource of one container. DeviceIDs: by NUMA node, or a plain list in version 1. AllocResp: protobuf, base64 in JSON."""

    PodUID: str
    ContainerName: str
    ResourceName: str
    DeviceIDs: dict[int, tuple[str, ...]] | tuple[str, ...]
    AllocResp: bytes | None


class Data(msgspec.Struct, frozen=True):
    """RegisteredDevices: healthy device IDs by resource name."""

    PodDeviceEntries: tuple[Entry, ...] | None
    RegisteredDevices: dict[str, tuple[str, ...]] | None


def checksum(data: Data) -> int:
    value = opening(is_nil=data.PodDeviceEntries is None)
    for position, entry in enumerate(data.PodDeviceEntries or ()):
        value = after_entry(value, entry, is_first=position == 0)
    return Closing(data.RegisteredDevices, is_nil=data.PodDeviceEntries is None).after(value)


def opening(*, is_nil: bool) -> int:
    """The hash of the text before the first entry. is_nil: the list of entries is null, not empty; Go prints them differently."""
    text = "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
    return _fnv1a(text + ("<nil>" if is_nil else "["), _OFFSET)


def after_entry(value: int, entry: Entry, *, is_first: bool) -> int:
    """The hash after an entry. value: the hash before it."""
    ids = entry.DeviceIDs
    devices = f"(checkpoint.DevicesPerNUMA){_map(ids)}" if isinstance(ids, dict) else f"([]string){_list(ids)}"
    response = "<nil>" if entry.AllocResp is None else _list(map(str, entry.AllocResp))
    text = (
        f"{{PodUID:(string){entry.PodUID} ContainerName:(string){entry.ContainerName}"
        f" ResourceName:(string){entry.ResourceName} DeviceIDs:{devices} AllocResp:([]uint8){response}}}"
    )
    return _fnv1a(text if is_first else f" {text}", value)


class Closing:
    """The text after the last entry: all device IDs of the node, which rarely change and are hashed last.

    Each step of the hash is (value ^ byte) * prime, and a byte changes only the low eight bits. Two values with the same low byte
    change by the same amounts, and their difference is only multiplied: one hash for each low byte serves every value.
    """

    def __init__(self, registered: Mapping[str, tuple[str, ...]] | None, *, is_nil: bool) -> None:
        devices = "<nil>" if registered is None else _map(registered)
        self._text = ("" if is_nil else "]") + f" RegisteredDevices:(map[string][]string){devices}}}"
        self._factor = pow(_PRIME, len(self._text.encode()), _MASK + 1)
        self._hashes: dict[int, int] = {}

    def after(self, value: int) -> int:
        """The checksum. value: the hash after the last entry."""
        low = value & 0xFF
        if low not in self._hashes:
            self._hashes[low] = _fnv1a(self._text, low)
        return (self._hashes[low] + (value - low) * self._factor) & _MASK


def _map(ids: Mapping[Any, tuple[str, ...]]) -> str:
    # numbers by value, names by code point: that is their order in UTF-8, too
    return f"map[{' '.join(f'{key}:{_list(ids[key])}' for key in sorted(ids))}]"


def _list(words: Iterable[str]) -> str:
    return f"[{' '.join(words)}]"


def _fnv1a(text: str, value: int) -> int:
    prime, mask = _PRIME, _MASK
    for octet in text.encode():
        value = ((value ^ octet) * prime) & mask
    return value
