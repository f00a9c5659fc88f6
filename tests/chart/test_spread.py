"""Two operators are on two nodes where that can be, whatever labels and sizes the nodes have: the real scheduler places them."""

import json
from collections.abc import Iterator

import pytest

from hack import yaml_text
from tests.chart.rendering import named
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until

BIG, SMALL = "spread-big", "spread-small"
_LABEL = "test.nodedevice.io/spread"


@pytest.fixture
def nodes(installed: ControlPlane) -> Iterator[None]:
    """One with much more room than the other, without zones: by room alone both operators would be on it."""
    installed.add_nodes([BIG, SMALL])
    try:
        room = {"cpu": "2", "memory": "4Gi", "pods": "20"}
        status = json.dumps({"status": {"capacity": room, "allocatable": room}})
        installed.kubectl("patch", "node", SMALL, "--subresource=status", "--patch", status)
        installed.kubectl("label", "node", BIG, SMALL, f"{_LABEL}=yes")
        yield
    finally:
        for name in (BIG, SMALL):
            installed.remove_node(name)


@pytest.mark.cluster
def test_operators_are_on_nodes_without_zones(installed: ControlPlane, nodes: None, namespace: str) -> None:
    values = {"operator": {"nodeSelector": {_LABEL: "yes"}}}
    deployment = named("Deployment", "nodedevice-operator", values)
    deployment["metadata"]["namespace"] = namespace
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = "default"
    installed.apply(yaml_text.dump(deployment))

    def placed() -> list[str]:
        found = json.loads(installed.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return sorted(each["spec"].get("nodeName", "") for each in found)

    try:
        wait_until(lambda: len(placed()) == 2 and all(placed()), "both operators are placed", 60)
        assert placed() == [BIG, SMALL]
    finally:
        # what makes them again goes first
        installed.kubectl("delete", "deployment", "nodedevice-operator", "-n", namespace, "--cascade=foreground")
