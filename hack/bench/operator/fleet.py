"""A fleet as it lies in the API: bodies of Nodes, their agents' NodeDevices and Leases, and the pods that hold devices.

Sends nothing. Sizes are those of a real cluster: a Node of 7 kB, as a kubelet with some images writes it; two NodeDevices a node
with 8 devices each, and two pods that hold two of either.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodedevice_api import names

RESOURCES = ("bench.example.com/gpu", "bench.example.com/nic")
DEVICES = 8
PODS = 2
NAMESPACE = "default"
_DEVICES_PER_POD = 2
_SINCE = "2026-01-02T03:04:05Z"
_IMAGES = 32
# Held are the first ones; this one is free, and may break without a pod losing anything.
_BREAKABLE = DEVICES - 1


@dataclass(frozen=True)
class Owner:
    """What others point to: the Node, or a pod."""

    name: str
    uid: str


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pod_name(node: str, number: int) -> str:
    return f"{node}-{number}"


def advertised(is_broken: bool) -> int:
    """What a Node must show of a resource, with that one free device broken or not."""
    return DEVICES - 1 if is_broken else DEVICES


def node(name: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "zone-a"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def node_status(name: str) -> dict[str, Any]:
    """What the kubelet writes when it starts."""
    capacity = {"cpu": "96", "memory": "1056293520Ki", "ephemeral-storage": "983349346Ki", "pods": "110"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet says of {kind} what it found",
            "lastHeartbeatTime": _SINCE,
            "lastTransitionTime": _SINCE,
        }
        for kind in kinds
    ]
    images = [
        {"names": [f"registry.example/team/application-{i}@sha256:{i:064x}", f"registry.example/team/a{i}:v1"]}
        for i in range(_IMAGES)
    ]
    return {
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": name}],
            "images": [{**image, "sizeBytes": 123456789} for image in images],
        }
    }


def pod(node: str, number: int) -> dict[str, Any]:
    limits = {resource: str(_DEVICES_PER_POD) for resource in RESOURCES}
    container = {"name": "main", "image": "registry.example/team/application", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(node, number), "namespace": NAMESPACE},
        "spec": {"nodeName": node, "containers": [container]},
    }


def lease(node: str, renewed: str, resource_version: str | None = None) -> dict[str, Any]:
    metadata = {"name": node, "namespace": names.AGENTS_NAMESPACE}
    if resource_version is not None:
        metadata["resourceVersion"] = resource_version
    spec = {"holderIdentity": node, "leaseDurationSeconds": names.AGENT_LEASE_SECONDS, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def node_device(owner: Owner, resource: str) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {"name": names.node_device_name(owner.name, resource), "ownerReferences": [reference]},
        "spec": {"nodeName": owner.name, "resourceName": resource},
    }


def node_device_status(node: str, resource: str, pods: Mapping[str, Owner], is_broken: bool) -> dict[str, Any]:
    """The agent's whole status, as each of its applies carries it. pods: by name."""
    ids = [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/{resource}/{number}")) for number in range(DEVICES)]
    broken = {ids[_BREAKABLE]} if is_broken else set()
    holders = [pods[pod_name(node, number)] for number in range(PODS)]
    allocations = [
        {
            "namespace": NAMESPACE,
            "name": holder.name,
            "podUID": holder.uid,
            "container": "main",
            "deviceIDs": sorted(ids[_DEVICES_PER_POD * place :][:_DEVICES_PER_POD]),
            "since": _SINCE,
        }
        for place, holder in enumerate(holders)
    ]
    held = PODS * _DEVICES_PER_POD
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {"name": names.node_device_name(node, resource)},
        "status": {
            "total": DEVICES,
            "healthy": DEVICES - len(broken),
            "cordoned": 0,
            "allocated": held,
            "releasing": 0,
            "available": DEVICES - len(broken) - held,
            "endpoint": {"state": "Running", "since": _SINCE},
            "agent": {"version": "0.1.0", "runtime": "nri"},
            "devices": [_device(place, device_id, device_id in broken) for place, device_id in enumerate(sorted(ids))],
            "allocations": sorted(allocations, key=lambda allocation: str(allocation["podUID"])),
            "conditions": _conditions(bool(broken)),
        },
    }


def _device(place: int, device_id: str, is_broken: bool) -> dict[str, Any]:
    shown = {"id": device_id, "health": "Healthy", "since": _SINCE, "numaNodes": [2 * place // DEVICES]}
    return {**shown, "health": "Unhealthy", "reason": names.Reason.REPORTED_UNHEALTHY} if is_broken else shown


def _conditions(has_broken: bool) -> list[dict[str, Any]]:
    healthy = ("False", names.Reason.SOME_UNHEALTHY) if has_broken else ("True", names.Reason.ALL_HEALTHY)
    answers = {
        names.Condition.REGISTERED: ("True", names.Reason.ENDPOINT_RUNNING),
        names.Condition.HEALTHY: healthy,
        names.Condition.INJECTABLE: ("True", "Injected"),
    }
    return [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": _SINCE}
        for kind, (status, reason) in answers.items()
    ]
