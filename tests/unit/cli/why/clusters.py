"""Clusters that are built of records, and how all of something in them is changed.

A pod without a node asks for 2 of GPU, which two of three nodes have, for a claim, and for one of NIC, which a DRA driver offers.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kubectl_nodedevice.cluster import (
    Agent,
    Allocation,
    Condition,
    Container,
    Device,
    Endpoint,
    Lease,
    Meta,
    Node,
    NodeDevice,
    Pod,
    PodClaim,
)
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.kinds import DeviceClass, Request, ResourceClaim, Slice, SliceDevice

GPU, NIC, FPGA = "example.com/gpu", "example.com/nic", "example.com/fpga"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RECENT, OLD = "2026-01-02T03:04:00Z", "2026-01-02T03:00:05Z"
DRIVER = "nic.example.com"
HOLDING = ("node-a", "node-b")


def gpus(node: str) -> NodeDevice:
    """4 healthy ones, all free."""
    conditions = [Condition("Registered", "True"), Condition("AgentReady", "True"), Condition("Advertised", "True")]
    return NodeDevice(
        Meta(f"{node}.example.com.gpu"),
        node,
        GPU,
        total=4,
        healthy=4,
        available=4,
        endpoint=Endpoint("Running", since=OLD),
        agent=Agent("nri", "nri", "nodedevice"),
        devices=tuple(Device(f"gpu-{number}", "Healthy", "Present", since=OLD) for number in range(4)),
        conditions={each.type: each for each in conditions},
    )


def base() -> Facts:
    """Nothing keeps the pod from a node."""
    nodes = [Node(Meta(name, labels={"zone": "z1"}), allocatable={GPU: "4"}) for name in HOLDING]
    pod = Pod(
        Meta("train", "team", "uid-1", created=RECENT),
        scheduler="default-scheduler",
        phase="Pending",
        containers=(Container("main", requests={GPU: "2", NIC: "1", "cpu": "1"}),),
        claims=(PodClaim("port", "train-port"),),
        conditions={"PodScheduled": Condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")},
    )
    ports = tuple(SliceDevice(f"port-{number}") for number in range(4))
    return Facts(
        NOW,
        "team",
        "train",
        pod,
        nodes=(*nodes, Node(Meta("node-c"))),
        node_devices=tuple(gpus(name) for name in HOLDING),
        leases=tuple(Lease(Meta(name), name, RECENT, 60) for name in (*HOLDING, "node-c")),
        classes=(DeviceClass("port.example.com", NIC, DRIVER),),
        slices=tuple(Slice(DRIVER, name, 1, name, ports) for name in HOLDING),
        claims=(ResourceClaim(Meta("train-port", "team"), (Request(("port.example.com",)),)),),
    )


def bound() -> Facts:
    """It has a node, holds what it asked for, and its container has not started yet."""
    (container,) = pod_of(base()).containers
    facts = pod_with(base(), node="node-a", containers=(replace(container, state="waiting"),))
    held = Allocation("team", "train", "uid-1", "main", device_ids=("gpu-0", "gpu-1"))
    return of_node_a(facts, lambda found: replace(found, allocations=(held,), allocated=2, available=2))


def pod_of(facts: Facts) -> Pod:
    assert facts.pod is not None
    return facts.pod


def of_node_a(facts: Facts, change: Callable[[NodeDevice], NodeDevice]) -> Facts:
    return each_found(facts, lambda found: change(found) if found.node == "node-a" else found)


def each_device(facts: Facts, change: Callable[[Device], Device], **more: Any) -> Facts:
    """All GPUs of all nodes."""
    return each_found(
        facts, lambda found: replace(found, devices=tuple(change(each) for each in found.devices), available=0, **more)
    )


def each_found(facts: Facts, change: Callable[[NodeDevice], NodeDevice]) -> Facts:
    return replace(facts, node_devices=tuple(change(each) for each in facts.node_devices))


def each_node(facts: Facts, change: Callable[[Node], Node]) -> Facts:
    return replace(facts, nodes=tuple(change(each) for each in facts.nodes))


def with_condition(kind: str, status: str, reason: str) -> Callable[[Facts], Facts]:
    new = Condition(kind, status, reason, since=OLD)
    return lambda facts: each_found(facts, lambda found: replace(found, conditions={**found.conditions, kind: new}))


def pod_with(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, pod=replace(pod_of(facts), **changes))


def asking(facts: Facts, resource: str, number: int | str) -> Facts:
    (container,) = pod_of(facts).containers
    return pod_with(facts, containers=(replace(container, requests={**container.requests, resource: str(number)}),))
