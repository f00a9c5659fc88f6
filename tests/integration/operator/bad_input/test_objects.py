"""NodeDevices, Nodes and Leases that nobody should send the operator: it logs that once, and takes nothing off a Node."""

import json
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.agent_objects import node_device
from tests.cluster.api import Node, NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.crds.custom_resources import allocation, apply_status
from tests.integration.operator_process import (
    GPU,
    LogFromHere,
    OperatorProcess,
    PlayedNode,
    delete,
    full,
    operator_writes,
)


class TestNodeDevices:
    """Objects that an agent of this version would never write."""

    def test_one_of_a_resource_that_has_one_already(self, node: PlayedNode) -> None:
        name = f"{node.name}.copy"
        body = node_device(node.name, GPU, node.uid, name)
        try:
            node.client.apply(NodeDevice.from_dict(body), field_manager="admin")
            wait_until(lambda: condition_of(node, name, "Ready").get("reason") == names.Reason.WRONG_NAME, "reported")
            apply_status(node.client, name, full(healthy=9), "admin")
            node.verify_follows()
            reported = condition_of(node, name, "Advertised")
            assert (reported["status"], reported["reason"]) == ("False", names.Reason.WRONG_NAME)
            assert f"belongs in the NodeDevice {node.nd_name()}" in reported["message"]
            node.wait_condition("Ready", "True")
        finally:
            delete(node.client, NodeDevice, name)
        node.verify_follows()

    def test_a_status_of_a_version_to_come(self, node: PlayedNode, proxy: FaultProxy, logged: LogFromHere) -> None:
        """What an API server with a newer CRD would send: more fields, and some that have become something else."""
        found: Any = node.client.get(NodeDevice, node.nd_name())
        body = found.to_dict()
        for change, is_reported in (({"partitions": [{"of": "gpu-0"}]}, False), ({"devices": {"gpu-0": {}}}, True)):
            version = int(body["metadata"]["resourceVersion"]) + is_reported
            body["metadata"]["resourceVersion"] = str(version)
            sent = {**body, "status": {**body["status"], **change}}
            line = json.dumps({"type": "MODIFIED", "object": sent}).encode() + b"\n"
            assert proxy.send(names.NODE_DEVICES, line) == 1
        assert logged.wait("cannot decode object; skipping it")["object"] == node.nd_name()
        node.renew_lease()
        assert node.shown() == ("4", "4")
        node.verify_follows()
        assert len(logged.lines("cannot decode object; skipping it")) == 1

    @pytest.mark.parametrize(
        ("namespace", "pod"),
        [
            pytest.param("default", "../../../nodes", id="a path"),
            pytest.param("..", "..", id="dots"),
            pytest.param("default", "a/status", id="a subresource"),
            pytest.param("default", "a?watch=1", id="a query"),
            pytest.param("kube-system", "no-such-pod", id="no such pod"),
            pytest.param("Default", "a\nb", id="no name"),
        ],
    )
    def test_an_allocation_of_what_is_no_pod(
        self,
        installed: ControlPlane,
        operator: OperatorProcess,
        node: PlayedNode,
        logged: LogFromHere,
        namespace: str,
        pod: str,
    ) -> None:
        before = pod_device_writes(installed)
        held = allocation("uid-a", "main", "gpu-0", namespace=namespace, name=pod)
        waits = {"podUID": "uid-b", "container": "main", "reason": "NotEnoughDevices"}
        waits |= {"namespace": namespace, "name": pod}
        node.advertise(4, broken=1, allocations=[held], waiting=[waits])
        node.advertise(3, broken=2, allocations=[held], waiting=[waits])
        node.wait_condition("Healthy", "False")
        node.wait_condition("Ready", "True")
        assert operator.get("/readyz")[0] == 200
        assert logged.lines("reconcile failed; retrying") == []
        assert pod_device_writes(installed) == before


class TestNodes:
    """Nodes that no API server of today would send."""

    def test_one_that_is_not_understood(self, node: PlayedNode, proxy: FaultProxy, logged: LogFromHere) -> None:
        """Nothing is written to it, nor to what names it, until it is valid again; it is not taken for one that is gone."""
        found: Any = node.client.get(Node, node.name)
        odd = {**found.to_dict(), "status": {"capacity": ["eight"]}}
        for _ in range(2):
            assert proxy.send("nodes", json.dumps({"type": "MODIFIED", "object": odd}).encode() + b"\n") == 1
        assert logged.wait("cannot decode object; skipping it")["object"] == node.name
        before = node.conditions()["Advertised"]
        node.publish(healthy=3, broken=1)
        other = PlayedNode(node.control_plane).settle()
        other.verify_follows()
        other.remove()
        assert node.shown() == ("4", "4")
        assert node.conditions()["Advertised"] == before
        # a heartbeat of its kubelet is enough
        node.kubelet_writes(capacity={"cpu": "9"})
        node.wait_shown(3)
        node.verify_follows()
        assert len(logged.lines("cannot decode object; skipping it")) == 1


def condition_of(node: PlayedNode, name: str, kind: str) -> dict[str, Any]:
    """That condition of any NodeDevice; {} where it has none."""
    found: Any = node.client.get(NodeDevice, name)
    return next((c for c in (found.status or {}).get("conditions", ()) if c["type"] == kind), {})


def pod_device_writes(installed: ControlPlane) -> list[str]:
    """What has been asked of PodDevices so far, but for taking those of earlier tests away: path and verb."""
    asked = operator_writes(installed, names.POD_DEVICES)
    return [f"{event['verb']} {event['requestURI']}" for event in asked if event["verb"] != "delete"]
