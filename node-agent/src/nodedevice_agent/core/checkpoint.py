"""The checkpoint: what a restart must not lose, in the kubelet's own format, checksum included.

Reads version 2 (Kubernetes 1.20 and newer) and version 1 (device IDs as a plain list); writes version 2. The checksum is
FNV-1a, 32 bits, over the text that Go's spew prints of the data, not over the JSON. BootID stands outside the checksummed part.
Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint and pkg/kubelet/checkpointmanager.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodedevice_agent.core.allocations import Allocation, by_numa

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_MAX_MESSAGE = 300


class CheckpointCorrupt(Exception):
    """A checkpoint that cannot be believed; the text says what is wrong with it, in bounds whatever the file holds."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """registered: healthy device IDs by resource; only the names are used again. boot_id: of the kernel that wrote it."""

    allocations: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boot_id: str = ""


def encode(checkpoint: Checkpoint) -> str:
    """The file's text: one compact JSON object, as the kubelet writes it."""
    entries = [_entry(allocation) for allocation in checkpoint.allocations] or None
    registered = {name: list(checkpoint.registered[name]) for name in sorted(checkpoint.registered)}
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    whole: dict[str, Any] = {"Data": data, "Checksum": checksum(data)}
    if checkpoint.boot_id:
        whole["BootID"] = checkpoint.boot_id
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    # Go's encoder escapes these inside strings; outside of strings JSON has none of them
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def decode(text: str) -> Checkpoint:
    """Raises CheckpointCorrupt."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CheckpointCorrupt(f"not JSON: {exc}") from exc
    if not isinstance(whole, dict) or not isinstance(whole.get("Data"), dict):
        raise CheckpointCorrupt("not a checkpoint: Data is missing")
    data, stored = whole["Data"], whole.get("Checksum")
    try:
        computed = checksum(data)
        allocations = tuple(_allocation(entry) for entry in data.get("PodDeviceEntries") or ())
        registered = {str(name): tuple(map(str, ids)) for name, ids in (data.get("RegisteredDevices") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as exc:
        raise CheckpointCorrupt(f"a field is missing or of the wrong kind: {exc!r}") from exc
    if stored != computed:
        raise CheckpointCorrupt(f"checksum is {stored}, but the content's is {computed}")
    _refuse_double_holders(allocations)
    return Checkpoint(allocations, registered, str(whole.get("BootID") or ""))


def checksum(data: Mapping[str, Any]) -> int:
    """Checksum of the `Data` object, as read from or to be written to JSON."""
    value = _FNV_OFFSET
    for byte in _dump(data).encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


def _entry(allocation: Allocation) -> dict[str, Any]:
    # JSON keys are sorted as strings ("-1", "0", "10", "2"), unlike in the checksum
    numa = {str(node): list(ids) for node, ids in allocation.ids_by_numa.items()}
    response = allocation.response
    return {
        "PodUID": allocation.pod_uid,
        "ContainerName": allocation.container,
        "ResourceName": allocation.resource_name,
        "DeviceIDs": {node: numa[node] for node in sorted(numa)},
        "AllocResp": None if response is None else base64.b64encode(response).decode("ascii"),
    }


def _allocation(entry: Mapping[str, Any]) -> Allocation:
    ids = entry["DeviceIDs"]
    # version 1 knew nothing of NUMA; later kubelets read its IDs as those of node 0
    by_node = by_numa(_texts(ids), dict.fromkeys(ids, (0,))) if isinstance(ids, list) else _nodes(ids)
    response = entry["AllocResp"]
    return Allocation(
        pod_uid=_text(entry["PodUID"]),
        container=_text(entry["ContainerName"]),
        resource_name=_text(entry["ResourceName"]),
        ids_by_numa=by_node,
        response=None if response is None else base64.b64decode(response, validate=True),
    )


def _nodes(ids: Mapping[str, list[str]]) -> dict[int, tuple[str, ...]]:
    return {node: _texts(ids[str(node)]) for node in sorted(map(int, ids))}


def _texts(values: list[str]) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    return tuple(map(_text, values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _refuse_double_holders(allocations: Iterable[Allocation]) -> None:
    holders: dict[tuple[str, str], str] = {}
    for allocation in allocations:
        for device_id in allocation.device_ids:
            holder = holders.setdefault((allocation.resource_name, device_id), allocation.pod_uid)
            if holder != allocation.pod_uid:
                raise CheckpointCorrupt(
                    f"{allocation.resource_name} {device_id} is held by pods {holder} and {allocation.pod_uid}"
                )


def _dump(data: Mapping[str, Any]) -> str:
    """The text that spew's %#v prints of the kubelet's checkpointData."""
    entries = data["PodDeviceEntries"]
    shown = "<nil>" if entries is None else "[" + " ".join(map(_dump_entry, entries)) + "]"
    registered = data["RegisteredDevices"]
    if registered is None:
        names = "<nil>"
    else:
        ids = (f"{name}:[{' '.join(registered[name])}]" for name in sorted(registered, key=str.encode))
        names = f"map[{' '.join(ids)}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){shown}"
        f" RegisteredDevices:(map[string][]string){names}}}"
    )


def _dump_entry(entry: Mapping[str, Any]) -> str:
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
