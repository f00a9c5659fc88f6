"""What must hold of who holds which device, whatever happened to the agent: judged from what it wrote, never from its memory.

Pure: statuses and checkpoints in, sentences about what is wrong out. An empty answer means that nothing is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodedevice_agent.devicemanager.state import Checkpoint


@dataclass(frozen=True, order=True)
class Holder:
    """One container's share of one resource."""

    resource_name: str
    pod_uid: str
    container: str


# Who holds which device IDs, sorted.
Holdings = dict[Holder, tuple[str, ...]]


def published(resource_name: str, status: Mapping[str, Any]) -> Holdings:
    """What the status of a NodeDevice says."""
    return {
        Holder(resource_name, entry["podUID"], entry["container"]): tuple(sorted(entry["deviceIDs"]))
        for entry in status.get("allocations", ())
    }


def saved(checkpoint: Checkpoint | None) -> Holdings:
    """What a checkpoint says; one that was never written says that nobody holds anything."""
    return {
        Holder(a.resource_name, a.pod_uid, a.container): a.device_ids
        for a in (checkpoint.allocations if checkpoint is not None else ())
    }


def shared_devices(holdings: Holdings) -> list[str]:
    """Devices that two pods hold. Containers of one pod may share: init containers hand theirs on."""
    pods: dict[tuple[str, str], set[str]] = {}
    for holder, device_ids in holdings.items():
        for device_id in device_ids:
            pods.setdefault((holder.resource_name, device_id), set()).add(holder.pod_uid)
    return [f"{name} {i} is held by pods {sorted(uids)}" for (name, i), uids in sorted(pods.items()) if len(uids) > 1]


def wrong_sums(status: Mapping[str, Any]) -> list[str]:
    """Numbers of a status that do not fit the devices and allocations beside them. Only for one that lists them whole."""
    devices = {device["id"]: device for device in status["devices"]}
    held = {device_id for entry in status["allocations"] for device_id in entry["deviceIDs"]}
    healthy = {device_id for device_id, device in devices.items() if device["health"] == "Healthy"}
    free = {device_id for device_id in healthy - held if "cordonedSince" not in devices[device_id]}
    expected = {"total": len(devices), "healthy": len(healthy), "available": len(free)}
    wrong = [f"{key} is {status[key]}, counted are {count}" for key, count in expected.items() if status[key] != count]
    if status["allocated"] + status["releasing"] != len(held):
        wrong.append(f"{status['allocated']} are allocated, {status['releasing']} releasing, held are {len(held)}")
    if unknown := held - devices.keys():
        wrong.append(f"held and not among the devices: {sorted(unknown)}")
    return wrong


@dataclass
class Ledger:
    """Everything that was ever seen, to hold later sightings against: what a container once got it keeps."""

    _known: Holdings = field(default_factory=dict)

    def enter(self, holdings: Holdings) -> list[str]:
        """Add a sighting. Returns what contradicts an earlier one, or itself."""
        wrong = shared_devices(holdings)
        for holder, device_ids in holdings.items():
            earlier = self._known.setdefault(holder, device_ids)
            if earlier != device_ids:
                wrong.append(f"{holder} held {earlier} and now holds {device_ids}")
        return wrong

    def lost(self, holdings: Holdings, alive: Collection[str]) -> list[str]:
        """Known holders, among pods that still exist and are not over, that `holdings` does not have."""
        return [
            f"{holder} held {device_ids} and now holds nothing"
            for holder, device_ids in self.of(alive).items()
            if holder not in holdings
        ]

    def of(self, pod_uids: Collection[str]) -> Holdings:
        """What these pods are known to hold."""
        return {holder: ids for holder, ids in self._known.items() if holder.pod_uid in pod_uids}


def unmet(needs: Iterable[tuple[Holder, int]], holdings: Holdings) -> Iterator[str]:
    """Containers that do not hold as many devices as they ask for; for pods that there is enough for."""
    for holder, count in needs:
        if len(holdings.get(holder, ())) != count:
            yield f"{holder} asks for {count} and holds {holdings.get(holder, ())}"
