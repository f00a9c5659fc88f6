"""NodeDevices, Nodes and Leases that nobody should send the operator: it logs that once, and takes nothing off a Node."""

import json
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.agent_objects import node_device
from tests.cluster.api import Node, NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.crds.custom_resources import allocation, apply_status, condition
from tests.integration.operator_process import (
    GPU,
    NIC,
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

    def test_one_of_a_missing_node(self, installed: ControlPlane, node: PlayedNode, bystander: PlayedNode) -> None:
        name = names.node_device_name("nowhere", GPU)
        body = node_device("nowhere", GPU, None)
        try:
            installed.client.apply(NodeDevice.from_dict(body), field_manager="admin")

            def reason(kind: str) -> str | None:
                return condition_of(bystander, name, kind).get("reason")

            wait_until(lambda: reason("Ready") == names.Reason.NODE_MISSING, "reported")
            apply_status(installed.client, name, full(healthy=9), "admin")
            node.verify_follows()
            assert reason("Ready") == reason("Advertised") == names.Reason.NODE_MISSING
        finally:
            delete(installed.client, NodeDevice, name)

    def test_one_without_an_agent(self, node: PlayedNode) -> None:
        name = node.nd_name(NIC)
        node.client.apply(NodeDevice.from_dict(node_device(node.name, NIC, node.uid)), field_manager="admin")
        status = {"status": full(healthy=5)}
        node.client.patch(NodeDevice.Status, name, status, patch_type=PatchType.MERGE, field_manager="admin")
        node.wait_condition("Advertised", "False", names.Reason.NOT_ADVERTISED, NIC)
        node.wait_condition("Ready", "False", resource=NIC)
        node.verify_follows()
        assert node.shown(NIC) == (None, None)
        # an agent that comes to have the resource takes it over
        node.advertise(3, NIC)

    def test_numbers_that_contradict_its_devices(self, node: PlayedNode, logged: LogFromHere) -> None:
        held = allocation("uid-a", "main", "gpu-0", "gpu-1")
        node.publish(healthy=4, allocations=[held])
        # as the API takes it: allocated + available is no more than total
        by_hand = {"status": {"allocated": 0, "available": 4}}
        node.client.patch(NodeDevice.Status, node.nd_name(), by_hand, patch_type=PatchType.MERGE, field_manager="admin")
        line = logged.wait("NodeDevice contradicts itself")
        assert "available is 4, but 2 of the devices listed are healthy and not allocated" in line["error"]
        [message] = node.wait_events("StatusContradictsItself", about=node.nd_name())
        assert message.startswith(f"{GPU} on {node.name}: available is 4")
        node.wait_shown(2)
        node.advertise(4, allocations=[held])
        node.verify_follows()
        assert len(logged.lines("NodeDevice contradicts itself")) == 1

    def test_one_that_takes_no_more_conditions(self, node: PlayedNode, proxy: FaultProxy, logged: LogFromHere) -> None:
        """It is full of somebody else's: the others of its Node are reported all the same."""
        others = [condition(f"Theirs{number}") for number in range(32 - len(names.AGENT_CONDITIONS))]
        # the operator sees it when it is full, and not before
        proxy.is_held.set()
        try:
            node.make(resource=NIC)
            apply_status(node.client, node.nd_name(NIC), full(healthy=2, conditions=others), "admin")
            node.publish(NIC, healthy=2)
        finally:
            proxy.is_held.clear()
        node.wait_shown(2, NIC)
        assert "Too many" in logged.wait("reconcile failed; retrying")["error"]
        node.publish(broken=4)
        node.wait_condition("Ready", "False", names.Reason.NONE_HEALTHY)
        assert "Ready" not in node.conditions(NIC)
        delete(node.client, NodeDevice, node.nd_name(NIC))
        node.advertise(4)
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
