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


def links(made: dict[str, Any], **facts: Any) -> list[tuple[str, str]]:
    known = Facts(NOW, "default", "try", pod=record_of(Pod, made), nodes=(record_of(Node, node("node-a")),), **facts)
    return [(each["state"], each["text"]) for each in chain.of(known, pods.explain(known))]


def asking(status: dict[str, Any], resource: str = "example.com/gpu", **of: Any) -> dict[str, Any]:
    made = pod(resource=resource, **of)
    made["status"] |= status
    return made


@pytest.mark.parametrize("is_by_pod", [True, False], ids=["only the PodDevice may be read", "by the NodeDevice"])
def test_a_pod_that_runs(is_by_pod: bool) -> None:
    by_node = node_device("node-a", allocations=[allocation()], allocated=1, available=1)
    known = (
        {"pod_device": record_of(PodDevice, pod_device())}
        if is_by_pod
        else {"node_devices": (record_of(NodeDevice, by_node),)}
    )
    assert links(asking(RUNNING), **known) == [
        ("done", "1 example.com/gpu"),
        ("done", "bound to node-a"),
        ("done", "1 allocated"),
        ("done", "all run"),
    ]


def test_a_pod_whose_devices_may_not_be_read() -> None:
    assert links(asking(RUNNING))[2:] == [("done", "not known"), ("done", "all run")]


def test_a_pod_without_devices() -> None:
    assert links(asking(RUNNING, "cpu"))[2:] == [("done", "none requested"), ("done", "all run")]


def test_a_pod_that_has_ended() -> None:
    assert links(asking({}, phase="Succeeded"))[2:] == [("done", "released"), ("done", "have ended")]


def test_a_pod_without_a_node_ends_the_chain() -> None:
    found = links(asking({}, node="", phase="Pending"))
    assert found[1][1] == "no node yet"
    assert found[2:] == [("open", "none allocated yet"), ("open", "not running")]


def test_after_a_broken_link_the_others_are_not_reached() -> None:
    """The pod is deleted, and still has its node and its device."""
    made = asking(RUNNING)
    made["metadata"]["deletionTimestamp"] = "2026-11-28T11:00:00Z"
    by_node = node_device("node-a", allocations=[allocation()], allocated=1, available=1)
    found = links(made, node_devices=(record_of(NodeDevice, by_node),))
    assert [state for state, _ in found] == ["broken", "open", "open", "open"]
