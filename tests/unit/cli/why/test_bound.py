"""A pod that has a node, obstacle by obstacle: each field of what is said, and what is beside the point."""

from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Allocation, Condition, Container, Device, Meta, PodDevice, Waiting
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import LEASES, Facts, Unread
from kubectl_nodedevice.why.kinds import Event
from kubectl_nodedevice.why.links import bound as links

from tests.unit.cli.why.clusters import FPGA, GPU, OLD, bound, each_found, gpus, of_node_a, pod_with

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
    taken: dict[str, Any] = {"allocations": (held,), "devices": (*gpus("node-a").devices[:3], broken)}
    facts = of_node_a(waiting(bound(), reason), lambda found: replace(found, **taken))
    assert of(facts) == [Obstacle("WaitsOnNode", "node-a", GPU, detail, "", {"words": reason, "reason": reason})]


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
    quiet = of_node_a(without, lambda found: replace(found, conditions=silent))
    unread = replace(quiet, unread=(Unread(LEASES, "no"),))
    assert of(unread) == [Obstacle("AgentSilent", "node-a", detail="for 4 min")]
    others = each_found(unread, lambda found: replace(found, conditions=silent) if found.node == "node-b" else found)
    alive = of_node_a(others, lambda found: replace(gpus("node-a"), allocations=()))
    assert of(replace(alive, node_devices=alive.node_devices[::-1])) == []


_UNKNOWN: Final = "endpoint not found in cache for a registered resource"


def _container(reason: str, message: str = "", **more: Any) -> Container:
    return Container("main", "registry/x:1", {GPU: "2"}, state="waiting", reason=reason, message=message, **more)


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (_container("ErrImagePull", "no such"), "ImageNotPulled", "registry/x:1, ErrImagePull: no such"),
        (replace(_container("InvalidImageName"), image=""), "ImageNotPulled", "InvalidImageName"),
        (_container("CreateContainerError", "required plugin x"), "RequiredPluginMissing", "{}: required plugin x"),
        (_container("X", f"no: {_UNKNOWN}"), "NameKeptByKubelet", f"{{}}: no: {_UNKNOWN}"),
        (_container("CreateContainerError", "odd"), "ContainerNotStarted", "{}: odd"),
        (_container("CrashLoopBackOff"), "ContainerNotStarted", "{}"),
    ],
)
def test_a_container_that_does_not_start(found: Container, code: str, words: str) -> None:
    fields = {"container": "main", "words": words.format(found.reason)}
    assert of(pod_with(bound(), containers=(found,))) == [Obstacle(code, "node-a", fields=fields)]


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
