"""An allocation as it stands in files: the kubelet's JSON for one entry of a checkpoint, and what may stand in its place.

Source: kubelet pkg/kubelet/cm/devicemanager/checkpoint.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, by_numa

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def as_json(value: object) -> str:
    """Compact, and escaped as Go's encoder does it."""
    text = _ENCODER.encode(value)
    # Go's encoder escapes these inside strings; outside of strings JSON has none of them
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def to_entry(allocation: Allocation) -> dict[str, Any]:
    """Version 2 of the format."""
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


def from_entry(entry: Mapping[str, Any]) -> Allocation:
    """Version 2 or 1. Raises KeyError, TypeError, ValueError or AttributeError for what is none."""
    ids = entry["DeviceIDs"]
    # version 1 knew nothing of NUMA; later kubelets read its IDs as those of node 0
    by_node = by_numa(texts(ids), dict.fromkeys(ids, (0,))) if isinstance(ids, list) else _nodes(ids)
    response = entry["AllocResp"]
    return Allocation(
        pod_uid=text(entry["PodUID"]),
        container=text(entry["ContainerName"]),
        resource_name=text(entry["ResourceName"]),
        ids_by_numa=by_node,
        response=None if response is None else base64.b64decode(response, validate=True),
    )


def texts(values: object) -> tuple[str, ...]:
    """Raises TypeError or ValueError."""
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    return tuple(map(text, values))


def text(value: object) -> str:
    """Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    # JSON can spell half a surrogate pair; what cannot be written again cannot be taken
    value.encode()
    return value


def _nodes(ids: Mapping[str, list[str]]) -> dict[int, tuple[str, ...]]:
    return {node: texts(ids[str(node)]) for node in sorted(map(int, ids))}
