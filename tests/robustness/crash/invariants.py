"""Invariants of allocations that hold whatever happens to the agent, checked on what it wrote, never on its memory.

Pure: statuses and checkpoints in, sentences about violations out; empty if there is none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint


@dataclass(frozen=True, order=True)
class Holder:
    """One container's share of one resource."""

    resource_name: str
    pod_uid: str
    container: str


# Sorted device IDs.
Holdings = dict[Holder, tuple[str, ...]]


def published(resource_name: str, status: Mapping[str, Any]) -> Holdings:
    """The allocations in the status of a NodeDevice."""
    return {
        Holder(resource_name, entry["podUID"], entry["container"]): tuple(sorted(entry["deviceIDs"]))
        for entry in status.get("allocations", ())
    }


def saved(checkpoint: Checkpoint | None) -> Holdings:
    """The allocations in a checkpoint; none where it was never written."""
    return {
        Holder(a.resource_name, a.pod_uid, a.container): a.device_ids
        for a in (checkpoint.allocations if checkpoint is not None else ())
    }


def shared_devices(holdings: Holdings) -> list[str]:
    """Devices of two pods. Containers of one pod may share: app containers reuse the devices of init containers."""
    pods: dict[tuple[str, str], set[str]] = {}
    for holder, device_ids in holdings.items():
        for device_id in device_ids:
            pods.setdefault((holder.resource_name, device_id), set()).add(holder.pod_uid)
    return [f"{name} {i} is held by pods {sorted(uids)}" for (name, i), uids in sorted(pods.items()) if len(uids) > 1]


def wrong_numbers(status: Mapping[str, Any]) -> list[str]:
    """Numbers of a status that contradict the devices and allocations beside them. For a status that omits none of them."""
    devices = {device["id"]: device for device in status["devices"]}
    held = {device_id for entry in status["allocations"] for device_id in entry["deviceIDs"]}
    healthy = {device_id for device_id, device in devices.items() if device["health"] == "Healthy"}
    free = {device_id for device_id in healthy - held if "cordonedSince" not in devices[device_id]}
    expected = {"total": len(devices), "healthy": len(healthy), "available": len(free)}
    wrong = [f"{key} is {status[key]}, the list has {count}" for key, count in expected.items() if status[key] != count]
    if status["allocated"] + status["releasing"] != len(held):
        wrong.append(f"{status['allocated']} allocated and {status['releasing']} releasing, the list has {len(held)}")
    if unknown := held - devices.keys():
        wrong.append(f"allocated and not among the devices: {sorted(unknown)}")
    return wrong


@dataclass
class Ledger:
    """All observed allocations: a container keeps its devices, so a later observation must not differ."""

    _known: Holdings = field(default_factory=dict)

    def add(self, holdings: Holdings) -> list[str]:
        """Add an observation. Returns contradictions with earlier ones, or within it."""
        wrong = shared_devices(holdings)
        for holder, device_ids in holdings.items():
            earlier = self._known.setdefault(holder, device_ids)
            if earlier != device_ids:
                wrong.append(f"{holder} held {earlier} and now holds {device_ids}")
        return wrong

    def lost(self, holdings: Holdings, alive: Collection[str]) -> list[str]:
        """Known holders, among pods that exist and have not ended, that are missing in `holdings`."""
        return [
            f"{holder} held {device_ids} and now holds nothing"
            for holder, device_ids in self.of(alive).items()
            if holder not in holdings
        ]

    def of(self, pod_uids: Collection[str]) -> Holdings:
        """The known allocations of these pods."""
        return {holder: ids for holder, ids in self._known.items() if holder.pod_uid in pod_uids}


def unmet(needs: Iterable[tuple[Holder, int]], holdings: Holdings) -> Iterator[str]:
    """Containers without as many devices as they request, of pods that fit on the node."""
    for holder, count in needs:
        if len(holdings.get(holder, ())) != count:
            yield f"{holder} requests {count} and holds {holdings.get(holder, ())}"
