"""What the fleet keeps of a pod and of a NodeDevice."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from nodedevice_api import assigned_parts, names
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement
from nodedevice_kube.planner import Need
from nodedevice_operator.objects.bound_pod import BoundPod, BoundPodSchema, bound_pod
from nodedevice_operator.objects.node_parts import NodeParts, ParentParts, PodHolding, node_parts
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

from tests.unit.operator.extender.fleets import MEM, given

POD: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "p", "uid": "u1", "resourceVersion": "7", "annotations": {}},
    "spec": {
        "nodeName": "a",
        "priority": 5,
        "initContainers": [
            {"name": "i", "resources": {"limits": {MEM: "4"}}},
            {"name": "s", "restartPolicy": "Always", "resources": {"limits": {MEM: 2}}},
        ],
        "containers": [
            {"name": "c", "resources": {"limits": {MEM: "1e1", "cpu": "1", "x.com/y": "500m"}}},
            {"name": "d"},
        ],
    },
}


def made(annotations: Mapping[str, str]) -> BoundPod:
    meta = {**POD["metadata"], "annotations": annotations}
    return bound_pod(msgspec.convert({**POD, "metadata": meta}, BoundPodSchema))


def test_a_pods_record() -> None:
    parts = {MEM: {"i": {"g0": 4}, "s": {"g0": 2}, "c": {"g1": 10}}}
    assigned = assigned_parts.encode("u1", parts)
    record = made({names.ASSIGNED_PARTS_ANNOTATION: assigned, names.SM_PERCENT_ANNOTATION: "30"})
    assert record.needs.of == ((MEM, (Need(4, True, "i"), Need(2, container="s"), Need(10, container="c"))),)
    assert (record.key, record.node, record.priority, record.needs.sm_percent) == (("ns", "p"), "a", 5, 30)
    assert record.assigned == parts


@pytest.mark.parametrize(
    "text",
    [
        "{",
        assigned_parts.encode("u2", given("g0", 10, "c")),
        assigned_parts.encode("u1", given("g0", 10, "c")),
        assigned_parts.encode("u1", {MEM: {"i": {"g0": 4}, "s": {"g0": 2}, "c": {"g1": 11}}}),
    ],
    ids=["not JSON", "of another pod", "not all containers", "another count"],
)
def test_an_assignment_that_does_not_hold_counts_as_none(text: str) -> None:
    assert made({names.ASSIGNED_PARTS_ANNOTATION: text}).assigned == {}


@pytest.mark.parametrize("text", ["0", "101", "1.5"])
def test_a_bad_percent_is_a_sentence(text: str) -> None:
    assert "must be a whole number from 1 to 100" in made({names.SM_PERCENT_ANNOTATION: text}).needs.problem


def test_the_record_of_a_nodedevice() -> None:
    status = {
        "agent": {"delivery": "nri"},
        "parts": {"placement": "SameParent", "choice": "Spread", "containers": "Later", "smPercent": 2},
        "devices": [
            {"id": f"g{i}", "parts": {"total": 80, "healthy": 80, "allocated": 80 - free, "available": free}}
            for i, free in enumerate((60, 80))
        ],
        "allocations": [
            {"podUID": "p", "container": "i", "parts": [{"parent": "g0", "parts": 20, "numbers": "0-19"}]},
            {"podUID": "p", "container": "c", "parts": [{"parent": "g0", "parts": 10, "numbers": "0-9"}]},
            {"podUID": "q", "container": "c", "parts": [{"parent": "gone", "parts": 1, "numbers": "0"}]},
        ],
        "waiting": [{"podUID": "w", "container": "c", "reason": "R", "final": True}],
    }
    created = "2026-01-01T00:00:00Z"
    metadata = {"name": "n", "uid": "u", "resourceVersion": "3", "creationTimestamp": created}
    obj = {"metadata": metadata, "spec": {"nodeName": "a", "resourceName": MEM}}

    def record(status: Mapping[str, Any]) -> NodeParts:
        return node_parts(msgspec.convert({**obj, "status": status}, NodeDeviceSchema))

    whole = NodeParts(
        *("n", "u", 3, "a", MEM, "nri"),
        PartRules(Placement.SAME_PARENT, Choice.SPREAD, PodPlacement.ANY),
        sm_percent=2,
        parents=(ParentParts("g0", 80, 60), ParentParts("g1", 80, 80)),
        holders={"p": (PodHolding(0, 20, (20, 10)),), "q": ()},
        refused=frozenset({"w"}),
    )
    unreported = NodeParts("n", "u", 3, "a", MEM, has_status=False)
    found = record({"total": 2, **status})
    assert (found, found.created) == (whole, created)
    assert found.without_lists() == replace(unreported, delivery="nri")
    assert found.weight > found.without_lists().weight == 0
    assert record({}) == unreported
    running = record({"endpoint": {"state": "Running"}, "devices": status["devices"]})
    assert running == replace(unreported, has_status=True)
