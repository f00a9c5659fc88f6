"""What of a pod in the API decides about devices."""

from typing import Any

import msgspec
import pytest
from nodedevice_agent.core.pods import Container, ContainerKind, Pod
from nodedevice_agent.edges.cluster import PodObject
from nodedevice_agent.edges.pods import from_api


def read(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    found = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **metadata}, "spec": spec, "status": status or {}}
    return from_api(msgspec.json.decode(msgspec.json.encode(found), type=PodObject))


def asks(name: str, limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits}, **more}


def test_kinds_of_containers_in_their_order() -> None:
    pod = read(
        {
            "initContainers": [asks("init", {"v.com/a": "1"}), asks("side", {"v.com/a": 2}, restartPolicy="Always")],
            "containers": [
                asks("app", {"v.com/a": "3", "cpu": "2", "hugepages-2Mi": "4Mi", "node.kubernetes.io/x": "1"})
            ],
        }
    )
    assert pod.containers == (
        Container("init", ContainerKind.INIT, {"v.com/a": 1}),
        Container("side", ContainerKind.SIDECAR, {"v.com/a": 2}),
        Container("app", ContainerKind.APP, {"v.com/a": 3}),
    )


@pytest.mark.parametrize(
    ("phase", "is_over"), [("Running", False), ("Succeeded", True), ("Failed", True), (None, False)]
)
def test_phase(phase: str | None, is_over: bool) -> None:
    assert read({"containers": []}, {"phase": phase}).is_over is is_over


def test_deletion() -> None:
    assert read({"containers": []}, deletionTimestamp="2026-01-01T00:00:00Z").is_terminating


def test_a_name_that_a_pod_has_through_dra_is_passed_over() -> None:
    """Row 52: only for the container and the name that a claim serves."""
    mapping = {"containerName": "a", "resourceName": "v.com/x", "requestName": "container-0-request-0"}
    pod = read(
        {"containers": [asks("a", {"v.com/x": "1", "v.com/y": "1"}), asks("b", {"v.com/x": "1"})]},
        {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}},
    )
    assert [dict(c.limits) for c in pod.containers] == [{"v.com/y": 1}, {"v.com/x": 1}]


@pytest.mark.parametrize(
    ("quantity", "count"), [("4", 4), ("1k", 1000), ("2Ki", 2048), (7, 7), ("0", 0), ("nonsense", 0), ("1e3", 1000)]
)
def test_quantities(quantity: str | int, count: int) -> None:
    pod = read({"containers": [asks("a", {"v.com/x": quantity})]})
    assert pod.containers[0].limits.get("v.com/x", 0) == count
