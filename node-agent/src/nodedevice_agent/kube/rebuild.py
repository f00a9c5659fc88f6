"""What resources there are and who holds what, read back from the NodeDevices after the checkpoint was lost.

It is tried until the API server answers: to go on without would be to give held devices out again.
"""

import logging
from collections.abc import Iterable
from typing import Any

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, by_numa
from nodedevice_agent.devicemanager.state import Checkpoint
from nodedevice_agent.kube.client import Cluster, NodeDeviceObject
from nodedevice_agent.kube.observed_status import resource_name_of, well_formed
from nodedevice_agent.kube.retry import until_done

log = logging.getLogger(__name__)


async def recover_checkpoint(cluster: Cluster, node_name: str) -> Checkpoint:
    """Allocations without the plugins' answers, which are asked for again with the same device IDs.

    Resources that nobody holds are in it too: a status that no agent cares for any more would stand for ever.
    """
    objects = await until_done("recovering allocations", lambda: cluster.node_devices_of(node_name))
    names = dict.fromkeys(filter(None, (resource_name_of(found.spec) for found in objects)), ())
    return Checkpoint(_each_device_once(a for found in objects for a in _allocations(found)), names)


def _each_device_once(allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """A status that somebody edited may give one device to two pods: the first keeps it, and it is said."""
    holders: dict[tuple[str, str], str] = {}
    kept = []
    for allocation in allocations:
        keys = [(allocation.resource_name, device_id) for device_id in allocation.device_ids]
        others = {holders.get(key, allocation.pod_uid) for key in keys} - {allocation.pod_uid}
        if others:
            extra = {
                "pod_uid": allocation.pod_uid,
                "held_by": sorted(others),
                "device_ids": list(allocation.device_ids),
            }
            log.error("the status gives a device to two pods; the first keeps it", extra=extra)
            continue
        holders.update(dict.fromkeys(keys, allocation.pod_uid))
        kept.append(allocation)
    return tuple(kept)


def _allocations(found: NodeDeviceObject) -> list[Allocation]:
    resource_name = resource_name_of(found.spec)
    if not resource_name:
        log.error("nodedevice names no resource; what it says is lost", extra={"nodedevice": found.metadata.name})
        return []
    status = well_formed(found.status)
    numa = {d["id"]: tuple(d.get("numaNodes", ())) for d in status.get("devices", ())}
    entries = status.get("allocations", ())
    _say_incomplete(found, status, entries)
    return [
        Allocation(entry["podUID"], entry["container"], resource_name, by_numa(entry["deviceIDs"], numa), None)
        for entry in entries
    ]


def _say_incomplete(found: NodeDeviceObject, status: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    omitted = status.get("allocationsOmitted", 0) + sum(e.get("deviceIDsOmitted", 0) for e in entries)
    if omitted:
        log.error(
            "the API holds only a part of who holds what; the rest is lost",
            extra={"nodedevice": found.metadata.name, "omitted": omitted},
        )
