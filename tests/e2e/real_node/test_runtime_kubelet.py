"""What is particular to a node whose kubelet allocates: holders are learnt from it, and capacity is its own."""

import json
import os
import signal

from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod


def until_held(of: NodeUnderTest, resource: str, expected: dict[str, list[str]]) -> None:
    of.until(lambda: of.holders(resource) == expected, f"{resource} is held by {expected}")


def cordon(of: NodeUnderTest, resource: str, *device_ids: str) -> None:
    """Exactly these are out of service."""
    name = names.node_device_name(of.node.name, resource)
    patch = {"spec": {"cordonedDevices": [{"id": device_id} for device_id in device_ids]}}
    of.control_plane.kubectl("patch", "nodedevice", name, "--type=merge", "-p", json.dumps(patch))


def test_holders_are_the_containers_that_found_the_devices(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    found = kubelet_node.run(pod("shown", [container("a", {rw.resource: 1}), container("b", {rw.resource: 2})]))
    expected = {f"shown/{name}": sorted(kubelet_node.seen("shown", name).env[rw.env].split(",")) for name in ("a", "b")}
    until_held(kubelet_node, rw.resource, expected)
    shown = kubelet_node.node_device(rw.resource)
    assert {a["podUID"] for a in shown["allocations"]} == {found["metadata"]["uid"]}
    assert (shown["allocated"], shown["available"], shown["agent"]["delivery"]) == (3, 0, "kubelet")
    kubelet_node.delete("shown")
    # the kubelet's checkpoint keeps the entry until the next pod comes
    until_held(kubelet_node, rw.resource, {})


def test_capacity_is_the_kubelets_own(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    of = kubelet_node
    of.until(lambda: of.condition(rw.resource, Condition.READY).get("status") == "True", "the resource is ready")
    assert of.condition(rw.resource, Condition.ADVERTISED)["reason"] == Reason.BY_KUBELET
    assert of.condition(rw.resource, Condition.INJECTABLE)["reason"] == Reason.KUBELET_REGISTERED
    node = json.loads(of.control_plane.kubectl("get", "node", of.node.name, "-o", "json", "--show-managed-fields"))
    ours = [entry for entry in node["metadata"]["managedFields"] if entry["manager"] == names.OPERATOR_FIELD_MANAGER]
    assert rw.resource not in json.dumps(ours)


def test_a_cordoned_device_is_given_to_nobody_and_a_held_one_stays(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    kubelet_node.run(pod("keeps", [container("main", {rw.resource: 1})]))
    (mine,) = kubelet_node.seen("keeps").env[rw.env].split(",")
    until_held(kubelet_node, rw.resource, {"keeps/main": [mine]})
    (first, *_) = sorted(set(rw.files) - {mine})
    cordon(kubelet_node, rw.resource, mine, first)
    # the held one counts on, so the kubelet lets its container start again
    kubelet_node.wait_allocatable(rw.resource, 2)
    os.kill(kubelet_node.pid_of("keeps", "main"), signal.SIGTERM)
    kubelet_node.wait("keeps", lambda _: len(kubelet_node.starts("keeps")) == 2, "has started twice")
    kubelet_node.run(pod("other", [container("main", {rw.resource: 1})]))
    assert kubelet_node.seen("other").env[rw.env] not in (mine, first)
    kubelet_node.delete("keeps")
    kubelet_node.wait_allocatable(rw.resource, 1)
    kubelet_node.delete("other")
    cordon(kubelet_node, rw.resource)
    kubelet_node.wait_allocatable(rw.resource, 3)


def test_an_agent_that_was_away_knows_who_came_and_went(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    for name in ("stays", "goes"):
        kubelet_node.run(pod(name, [container("main", {rw.resource: 1})]))
    kubelet_node.agent.kill()
    kubelet_node.delete("goes")
    # the kubelet stands in for nobody: without the agent there is nothing to be given out
    kubelet_node.wait_allocatable(rw.resource, 0)
    kubelet_node.start_agent()
    kubelet_node.wait_allocatable(rw.resource, 3)
    until_held(kubelet_node, rw.resource, {"stays/main": kubelet_node.seen("stays").env[rw.env].split(",")})
    assert len(kubelet_node.starts("stays")) == 1
    kubelet_node.delete("stays")


def test_a_broken_device_leaves_the_kubelets_count(kubelet_node: NodeUnderTest) -> None:
    rw = kubelet_node.kinds["rw"]
    kubelet_node.plugins.set_health(rw.resource, "rw-1", False)
    kubelet_node.wait_allocatable(rw.resource, 2)
    kubelet_node.plugins.set_health(rw.resource, "rw-1", True)
    kubelet_node.wait_allocatable(rw.resource, 3)
