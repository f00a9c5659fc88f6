"""Recovers resources and allocations from the NodeDevices after the checkpoint was lost.

Retried until the API server responds: without it, devices in use would be allocated again.
"""

import logging
from collections.abc import Iterable
from typing import Any

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, by_numa
from nodedevice_agent.kube.client import KubeClient, NodeDeviceObject, until_done
from nodedevice_agent.kube.status import resource_name_of, well_formed

log = logging.getLogger(__name__)


async def recover_checkpoint(cluster: KubeClient, node_name: str) -> Checkpoint:
    """Allocations without the plugins' responses: Allocate is called again with the same device IDs.

    Resources without allocations are included, so that their status is kept up to date too.
    """
    objects = await until_done(lambda: cluster.node_devices_of(node_name))
    names = dict.fromkeys(filter(None, (resource_name_of(found.spec) for found in objects)), ())
    return Checkpoint(_each_device_once(a for found in objects for a in _allocations(found)), names)


def _each_device_once(allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """An edited status may list one device for two pods: the first keeps it, and an error is logged."""
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
            log.error("conflict: two pods hold the same device in the status; keeping the first", extra=extra)
            continue
        holders.update(dict.fromkeys(keys, allocation.pod_uid))
        kept.append(allocation)
    return tuple(kept)


def _allocations(found: NodeDeviceObject) -> list[Allocation]:
    resource_name = resource_name_of(found.spec)
    if not resource_name:
        log.error(
            "invalid NodeDevice without a resource name; its allocations are lost",
            extra={"nodedevice": found.metadata.name},
        )
        return []
    status = well_formed(found.status)
    numa = {d["id"]: tuple(d.get("numaNodes", ())) for d in status.get("devices", ())}
    entries = status.get("allocations", ())
    _log_omitted(found, status, entries)
    return [
        Allocation(entry["podUID"], entry["container"], resource_name, by_numa(entry["deviceIDs"], numa), None)
        for entry in entries
    ]


def _log_omitted(found: NodeDeviceObject, status: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    omitted = status.get("allocationsOmitted", 0) + sum(e.get("deviceIDsOmitted", 0) for e in entries)
    if omitted:
        log.error(
            "the NodeDevice status omits allocations; they are lost",
            extra={"nodedevice": found.metadata.name, "omitted": omitted},
        )
