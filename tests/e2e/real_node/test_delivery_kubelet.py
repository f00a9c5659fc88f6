"""What is particular to a node whose kubelet allocates: it is offered what is not cordoned, and knows the holders."""

import json
import os
import signal

from nodedevice_api import names

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod


def until_held(of: NodeUnderTest, resource: str, expected: dict[str, list[str]]) -> None:
    of.until(lambda: of.holders(resource) == expected, f"{resource} is held by {expected}")


def cordon(of: NodeUnderTest, resource: str, *device_ids: str) -> None:
    """Exactly these are out of service."""
    name = names.node_device_name(of.node.name, resource)
    patch = {"spec": {"cordonedDevices": [{"id": device_id} for device_id in device_ids]}}
    of.control_plane.kubectl("patch", "nodedevice", name, "--type=merge", "-p", json.dumps(patch))


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
