"""Builds a fleet's objects: Nodes, the status that agents report, and the pods that hold devices.

Sends nothing. Sizes match a real cluster: a Node of 7 kB, like that of a kubelet with some images; two NodeDevices
per node with 8 devices each, and two pods that hold two of either. With BENCH_DRA also pools of DRA drivers, with two
devices held by each pod.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodedevice_api import names
from nodedevice_api.nodedevice import AgentStatus, AllocationStatus, ClaimedDevice, ClaimStatus, DeviceStatus

from tests.cluster import agent_objects
from tests.cluster.agent_objects import SINCE

# BENCH_RESOURCES=3: one of them is served by the kubelet, and only observed
RESOURCES = ("bench.example.com/gpu", "bench.example.com/nic", "bench.example.com/observed")[
    : int(os.environ.get("BENCH_RESOURCES", "2"))
]
# BENCH_DRA=3: additional pools of DRA drivers per node, which are only shown
POOLS = tuple(f"gpu-{number}.bench.example.com/devices" for number in range(int(os.environ.get("BENCH_DRA", "0"))))
DEVICES = 8
PODS = 2
_ATTRIBUTES = 8
NAMESPACE = "default"
_DEVICES_PER_POD = 2
_IMAGES = 32
# The first ones are held; this one is free, and may fail without affecting a pod.
_BREAKABLE = DEVICES - 1


@dataclass(frozen=True)
class Owner:
    """An object that others refer to: the Node, or a pod."""

    name: str
    uid: str


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pod_name(node: str, number: int) -> str:
    return f"{node}-{number}"


def advertised(is_broken: bool) -> int:
    """The number that a Node must show for a resource, with that one free device unhealthy or not."""
    return DEVICES - 1 if is_broken else DEVICES


def node(name: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "zone-a"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def node_status(name: str) -> dict[str, Any]:
    """The status that the kubelet writes when it starts."""
    capacity = {"cpu": "96", "memory": "1056293520Ki", "ephemeral-storage": "983349346Ki", "pods": "110"}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": f"Kubelet{kind}",
            "message": f"kubelet says of {kind} what it found",
            "lastHeartbeatTime": SINCE,
            "lastTransitionTime": SINCE,
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


def node_device_status(
    node: str, resource: str, pods: Mapping[str, Owner], is_broken: bool, holders: int = PODS
) -> dict[str, Any]:
    """The agent's whole status, as each of its applies carries it. pods: by name. holders: number of the node's pods
    with devices.
    """
    ids = [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/{resource}/{number}")) for number in range(DEVICES)]
    broken = {ids[_BREAKABLE]} if is_broken else set()
    found = [pods[pod_name(node, number)] for number in range(holders)]
    allocations = [
        AllocationStatus(
            namespace=NAMESPACE,
            name=holder.name,
            pod_uid=holder.uid,
            container="main",
            device_ids=sorted(ids[_DEVICES_PER_POD * place :][:_DEVICES_PER_POD]),
            since=SINCE,
        )
        for place, holder in enumerate(found)
    ]
    devices = [_device(place, device_id, device_id in broken) for place, device_id in enumerate(sorted(ids))]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {"name": names.node_device_name(node, resource)},
        "status": agent_objects.status(devices, allocations, delivery="nri"),
    }


def pool_status(node: str, pool: str, pods: Mapping[str, Owner]) -> dict[str, Any]:
    """The same for a pool: half of the devices are held, by a claim of each pod; the claim has more than a name."""
    ids = [f"gpu-{number}" for number in range(DEVICES)]
    attributes = {f"attribute{number}": f"value of the attribute {number}" for number in range(_ATTRIBUTES)}
    devices = [
        DeviceStatus(id=i, health="Healthy", since=SINCE, numa_nodes=[2 * place // DEVICES], attributes=attributes)
        for place, i in enumerate(ids)
    ]
    allocations = []
    for place in range(PODS):
        holder = pods[pod_name(node, place)]
        held = ids[_DEVICES_PER_POD * place :][:_DEVICES_PER_POD]
        claim = ClaimStatus(
            name=f"{holder.name}-claim-{pool.partition('.')[0]}",
            uid=holder.uid,
            devices=[ClaimedDevice(id=i, extended_resource="bench.example.com/by-name") for i in held],
        )
        row = AllocationStatus(
            namespace=NAMESPACE,
            name=holder.name,
            pod_uid=holder.uid,
            container="main",
            device_ids=held,
            since=SINCE,
            claim=claim,
        )
        allocations.append(row)
    agent = AgentStatus(version="0.1.0", served_by=names.SERVED_BY_DRA)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE,
        "metadata": {"name": names.node_device_name(node, pool)},
        "status": agent_objects.status(devices, allocations, agent=agent, driver=pool.partition("/")[0], pool=node),
    }


def _device(place: int, device_id: str, is_broken: bool) -> DeviceStatus:
    return DeviceStatus(
        id=device_id,
        health="Unhealthy" if is_broken else "Healthy",
        reason=names.Reason.REPORTED_UNHEALTHY if is_broken else "",
        since=SINCE,
        numa_nodes=[2 * place // DEVICES],
    )
