"""The form in which the browser gets a NodeDevice: a letter for each device, and who holds it. Pure.

One NodeDevice, as JSON:

    name, node, resource, by    by: nodedevice, kubelet, dra, or ""
    ids, states                 of the listed devices; a letter of LETTERS for each
    holders                     [index of the device, namespace/pod, parts]
    parts                       [index of the device, free parts, parts]
    more                        devices that the NodeDevice omits
    total, free, held           numbers of its status
    ready                       reason why it is not Ready; "" if it is
    silent                      since when its agent is silent; "" if it is not
    waiting                     pods that are bound to the node and wait for its devices
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kubectl_nodedevice.attention import Need, of_devices, of_waiting
from kubectl_nodedevice.cluster import NodeDevice
from kubectl_nodedevice.device_state import (
    BROKEN,
    CORDONED,
    FREE,
    HELD_BY_POD,
    MISSING,
    NO_PLUGIN,
    PARTLY_FREE,
    RELEASING,
    TAINTED,
    UNKNOWN,
    everybody_of,
    holders_of,
    state_of,
)
from kubectl_nodedevice.summaries import Summary

LETTERS: Final = {
    FREE: "f",
    PARTLY_FREE: "p",
    HELD_BY_POD: "h",
    RELEASING: "r",
    CORDONED: "c",
    TAINTED: "t",
    BROKEN: "b",
    MISSING: "m",
    NO_PLUGIN: "g",
    UNKNOWN: "u",
}


@dataclass(frozen=True, slots=True)
class Square:
    """One NodeDevice as the page keeps it. text: JSON for the browser. rest: what its needs are made of, if it has any."""

    name: str
    text: str
    summary: Summary
    rest: NodeDevice | None

    def needs(self, now: datetime) -> list[Need]:
        """The devices and pods of this NodeDevice that need attention."""
        return [*of_devices(self.rest, now), *of_waiting(self.rest, now)] if self.rest is not None else []


def square_of(found: NodeDevice, now: datetime) -> Square:
    summary = _summary(found)
    return Square(found.name, json.dumps(_data(found, now), separators=(",", ":")), summary, _rest(found, summary))


def _summary(found: NodeDevice) -> Summary:
    ready, agent = found.condition("Ready"), found.condition("AgentReady")
    return Summary(
        found.name,
        found.node,
        found.resource,
        found.total or 0,
        found.healthy,
        found.allocated,
        found.available,
        found.cordoned,
        ready.status,
        ready.reason,
        agent.status,
        found.served_by,
        len(found.waiting),
    )


def _rest(found: NodeDevice, summary: Summary) -> NodeDevice | None:
    """The parts that need attention, without the thousands that do not."""
    broken = tuple(each for each in found.devices if not each.is_healthy)
    ids = {each.id for each in broken}
    held = tuple(
        each
        for each in found.allocations
        if each.not_injected or not ids.isdisjoint((*each.device_ids, *(parts.parent for parts in each.parts)))
    )
    is_twice = found.condition("OfferedTwice").status == "True"
    if not (summary.needs_reading or broken or held or is_twice):
        return None
    return replace(found, devices=broken, allocations=held)


def _data(found: NodeDevice, now: datetime) -> dict[str, Any]:
    holders, everybody = holders_of(found), everybody_of(found)
    ready, agent = found.condition("Ready"), found.condition("AgentReady")
    index = {device.id: number for number, device in enumerate(found.devices)}
    codes = (state_of(found, each, holders.get(each.id, ()), now).codes[0] for each in found.devices)
    return {
        "name": found.name,
        "node": found.node,
        "resource": found.resource,
        "by": found.served_by,
        "ids": [each.id for each in found.devices],
        "states": "".join(LETTERS[code] for code in codes),
        "holders": [
            [index[device_id], each.pod, each.parts]
            for device_id, of in everybody.items()
            if device_id in index
            for each in of
        ],
        "parts": [
            [number, each.parts.available, each.parts.total] for number, each in enumerate(found.devices) if each.parts
        ],
        "more": found.devices_omitted,
        "total": found.total or 0,
        "free": found.available,
        "held": found.allocated,
        "ready": "" if ready.status == "True" else ready.reason or "NotReconciled",
        "silent": agent.since or "unknown" if agent.status not in ("True", "") else "",
        "waiting": len(found.waiting),
    }
