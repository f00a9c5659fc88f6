"""A pod that has a node, obstacle by obstacle: each field of what is said, and what is beside the point."""

from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Allocation, Condition, Container, Device, Meta, PodDevice, Waiting
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import LEASES, NODE_DEVICES, NODES, POD_DEVICES, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass, Event
from kubectl_nodedevice.why.links import bound as links

from tests.unit.cli.why.clusters import FPGA, GPU, NIC, OLD, bound, each_found, gpus, of_node_a, pod_with

_EVENTS: Final = (Event(reason="Pulled", message="no"), *[Event(reason="DevicesWaiting", message="early")] * 2)


def of(facts: Facts) -> list[Obstacle]:
    assert facts.pod is not None
    return list(links.obstacles(facts, facts.pod))


def waiting(facts: Facts, reason: str, message: str = "", **more: Any) -> Facts:
    """The pod has nothing yet; another pod waits there, too, and so does this one on another node."""
    one = Waiting("team", "train", "uid-1", "main", reason, message, **more)
    other = replace(one, pod_uid="other", reason="Other")
    with_it = of_node_a(facts, lambda found: replace(found, allocations=(), waiting=(other, one)))
    return each_found(with_it, lambda found: replace(found, waiting=(one,)) if found.node != "node-a" else found)


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        *((each, "gpu-3 (Xid79 for 4 min); gpu-0 by team/other") for each in ("NotEnoughDevices", "NoDeviceFits")),
        ("Odd", ""),
    ],
)
def test_of_a_pod_that_finds_too_few_it_is_said_what_takes_them(reason: str, detail: str) -> None:
    held = Allocation("team", "other", "uid-2", "main", device_ids=("gpu-0",))
    broken = Device("gpu-3", "Unhealthy", reason="Xid79", since=OLD)
    facts = of_node_a(
        waiting(bound(), reason),
        lambda found: replace(found, allocations=(held,), devices=(*found.devices[:3], broken)),
    )
    assert of(facts) == [Obstacle("WaitsOnNode", "node-a", GPU, detail, "", {"words": reason, "reason": reason})]


def test_a_pod_that_runs_without_and_waits() -> None:
    expected = {"container": "main", "words": ": Odd (it is so)"}
    assert of(waiting(bound(), "Odd", "it is so", not_injected=True)) == [
        Obstacle("RunsWithoutDevices", "node-a", GPU, fields=expected)
    ]


def test_a_pod_that_runs_without_what_it_holds() -> None:
    bare = Allocation("team", "train", "uid-1", "main", device_ids=("gpu-0", "gpu-1"), not_injected=True)
    expected = {"container": "main", "words": ", although gpu-0, gpu-1 are allocated to it"}
    facts = of_node_a(bound(), lambda found: replace(found, allocations=(replace(bare, pod_uid="x"), bare)))
    assert of(facts) == [Obstacle("RunsWithoutDevices", "node-a", GPU, fields=expected)]
    ending = of_node_a(bound(), lambda found: replace(found, allocations=(replace(bare, releasing=True),)))
    assert not any(each.code == "RunsWithoutDevices" for each in of(ending))


def test_the_agent_of_its_own_resource_counts() -> None:
    """Where the pod has its devices, where the node does not serve them, and on other nodes the agent is beside the point."""
    silent = {"AgentReady": Condition("AgentReady", "False", "LeaseExpired", since=OLD)}
    facts = replace(bound(), leases=())
    expected = [Obstacle("NoAgent", "node-a", detail="it has no Lease")]
    assert of(facts) == []
    without = of_node_a(facts, lambda found: replace(found, allocations=()))
    assert of(without) == expected
    of_another = of_node_a(without, lambda found: replace(found, resource=FPGA))
    assert of(of_another) == []
    unread = replace(
        of_node_a(without, lambda found: replace(found, conditions=silent)), unread=(Unread(LEASES, "no"),)
    )
    assert of(unread) == [Obstacle("AgentSilent", "node-a", detail="for 4 min")]
    others = each_found(unread, lambda found: replace(found, conditions=silent) if found.node == "node-b" else found)
    alive = of_node_a(others, lambda found: replace(gpus("node-a"), allocations=()))
    assert of(replace(alive, node_devices=alive.node_devices[::-1])) == []


@pytest.mark.parametrize(("message", "code"), [("it waits", "WaitsOnNode"), ("it cannot get them: x", "WaitsForGood")])
def test_whoever_sees_events_alone_sees_that_it_waits(message: str, code: str) -> None:
    facts = replace(
        bound(),
        node_devices=(),
        unread=(Unread(NODE_DEVICES, "no"),),
        events=(*_EVENTS, Event(reason="DevicesWaiting", message=message)),
    )
    expected = Obstacle(code, "node-a", GPU, fields={"words": message})
    assert of(facts) == [expected]
    assert of(replace(facts, unread=())) == []
    assert of(replace(facts, events=())) == []
    # it asks for nothing by a name
    assert of(pod_with(facts, containers=(Container("main"),))) == [replace(expected, resource="devices")]
    # it has them by now
    has = replace(facts, pod_device=PodDevice(Meta("train"), "node-a", "uid-1"))
    assert of(has) == []
    assert of(replace(has, pod_device=PodDevice(Meta("train"), "node-a", "of before"))) == [expected]
    assert of(replace(has, unread=(*has.unread, Unread(POD_DEVICES, "no")))) == [expected]


def test_a_number_that_nobody_serves() -> None:
    """Beside a driver of the resource it is a pod that runs without."""
    facts = replace(bound(), classes=(DeviceClass("nic.example.com", NIC),), claims=())
    containers = (
        Container("a", requests={NIC: "1"}, state="running"),
        Container("b", requests={GPU: "2"}, state="running"),
        Container("c", requests={NIC: "1"}, state="running"),
    )
    facts = pod_with(facts, phase="Running", containers=containers)
    [first, *others] = facts.nodes
    facts = replace(facts, nodes=(replace(first, allocatable={GPU: "4", NIC: "8"}), *others))
    detail = "it shows 8, and container a, c runs without it"
    assert of(facts) == [Obstacle("StrayCapacity", "node-a", NIC, detail)]
    assert of(pod_with(facts, extended_claim="made")) == []
    assert of(pod_with(facts, phase="Pending")) == []
    assert of(replace(facts, classes=())) == []
    assert of(replace(facts, nodes=(replace(first, allocatable={NIC: "0"}), *others))) == []
    assert of(replace(facts, nodes=tuple(others))) == [Obstacle("NodeMissing", "node-a")]
    assert of(replace(facts, nodes=(), unread=(Unread(NODES, "no"),))) == []
    ours = replace(gpus("node-a"), resource=NIC, agent=replace(gpus("node-a").agent, served_by="kubelet"))
    assert of(replace(facts, node_devices=(*facts.node_devices, ours))) == []


# -- containers ---------------------------------------------------------------------------------------------------------------


def _container(reason: str, message: str = "", **more: Any) -> Container:
    return Container("main", "registry/x:1", {GPU: "2"}, state="waiting", reason=reason, message=message, **more)


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (_container("ErrImagePull", "no such"), "ImageNotPulled", "registry/x:1, ErrImagePull: no such"),
        (replace(_container("InvalidImageName"), image=""), "ImageNotPulled", "InvalidImageName"),
        (_container("CreateContainerError", "required plugin x"), "RequiredPluginMissing", "{}: required plugin x"),
        (
            _container("X", "no: endpoint not found in cache for a registered resource"),
            "NameKeptByKubelet",
            "{}: no: endpoint not found in cache for a registered resource",
        ),
        (_container("CreateContainerError", "odd"), "ContainerNotStarted", "{}: odd"),
        (_container("CrashLoopBackOff"), "ContainerNotStarted", "{}"),
    ],
)
def test_a_container_that_does_not_start(found: Container, code: str, words: str) -> None:
    fields = {"container": "main", "words": words.format(found.reason)}
    assert of(pod_with(bound(), containers=(found,))) == [Obstacle(code, "node-a", fields=fields)]


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", ""])
def test_a_container_that_is_starting(reason: str) -> None:
    assert of(pod_with(bound(), containers=(_container(reason, "soon"),))) == []


@pytest.mark.parametrize("refusal", ["Permission denied", "permission denied", "EACCES", "[Errno 13]"])
def test_a_container_that_may_not_open_its_device(refusal: str) -> None:
    said = f"first\n /dev/x: {refusal} once\n /dev/x: {refusal} twice\n  /dev/y: {refusal} {'!' * 400}\nlast"
    words = f"/dev/y: {refusal} {'!' * 400}"[:300]
    facts = pod_with(bound(), containers=(_container("CrashLoopBackOff", last_words=said),))
    expected = [Obstacle("DeviceFileRefused", "node-a", fields={"container": "main", "words": words})]
    assert of(facts) == expected
    runs = replace(_container("", last_words=said), state="running")
    assert of(pod_with(facts, containers=(runs,))) == []
    # of a pod without devices it is no device's file
    bare = of_node_a(facts, lambda found: replace(found, allocations=(), resource=FPGA))
    assert [each.code for each in of(bare)] == ["ContainerNotStarted"]
    assert of(replace(bare, pod_device=PodDevice(Meta("train"), "node-a", "uid-1"))) == expected


def test_a_claim_that_is_not_prepared() -> None:
    events = tuple(Event(reason="FailedPrepareDynamicResources", message=each) for each in ("a", "b", "late"))
    facts = replace(bound(), events=(*events, Event(reason="Other", message="no")))
    assert of(facts) == [Obstacle("ClaimNotPrepared", "node-a", fields={"words": "late"})]
    runs = pod_with(facts, containers=(Container("main", state="running"), Container("b", state="waiting")))
    assert of(runs) == []
