"""The chain from a pod's request to its containers: what is done, and the first link that is broken."""

from datetime import UTC, datetime
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Node, NodeDevice, Pod, PodDevice
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why import pods
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.links import chain

from tests.unit.cli.objects import allocation, node, node_device, pod, pod_device

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}


BY_NODE: dict[str, Any] = {
    "node_devices": (record_of(NodeDevice, node_device("node-a", allocations=[allocation()], allocated=1)),)
}


def links(made: dict[str, Any], **facts: Any) -> list[tuple[str, str]]:
    known = Facts(NOW, "default", "try", pod=record_of(Pod, made), nodes=(record_of(Node, node("node-a")),), **facts)
    return [(each["state"], each["text"]) for each in chain.of(known, pods.explain(known))]


def asking(status: dict[str, Any], resource: str = "example.com/gpu", **of: Any) -> dict[str, Any]:
    made = pod(resource=resource, **of)
    made["status"] |= status
    return made


@pytest.mark.parametrize(
    "known",
    [{"pod_device": record_of(PodDevice, pod_device())}, BY_NODE],
    ids=["only the PodDevice may be read", "by the NodeDevice"],
)
def test_a_pod_that_runs(known: dict[str, Any]) -> None:
    words = ("1 example.com/gpu", "bound to node-a", "1 allocated", "all run")
    assert links(asking(RUNNING), **known) == [("done", each) for each in words]


@pytest.mark.parametrize(
    ("made", "node", "state", "ends"),
    [
        (asking(RUNNING), "bound to node-a", "done", ["not known", "all run"]),
        (asking(RUNNING, "cpu"), "bound to node-a", "done", ["none requested", "all run"]),
        (asking({}, phase="Succeeded"), "bound to node-a", "done", ["released", "have ended"]),
        (asking({}, node="", phase="Pending"), "no node yet", "open", ["none allocated yet", "not running"]),
    ],
    ids=["devices that may not be read", "no devices", "ended", "no node"],
)
def test_the_last_links(made: dict[str, Any], node: str, state: str, ends: list[str]) -> None:
    found = links(made)
    assert (found[1][1], found[2:]) == (node, [(state, each) for each in ends])


def test_after_a_broken_link_the_others_are_not_reached() -> None:
    """The pod is deleted, and still has its node and its device."""
    made = asking(RUNNING)
    made["metadata"]["deletionTimestamp"] = "2026-11-28T11:00:00Z"
    assert [state for state, _ in links(made, **BY_NODE)] == ["broken", "open", "open", "open"]
