"""The first screen: what is counted, what needs attention and in which order, and how little is read for it."""

import json
from typing import Any

from kubectl_nodedevice import attention

from tests.unit.cli.api_server import LEASES, OURS, PODS, FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import NODE_DEVICES, allocation, condition, device, node_device


def _node_device(node: str, reason: str, message: str = "", agent: str = "True", **more: Any) -> dict[str, Any]:
    """That is not Ready, and why."""
    conditions = [condition("AgentReady", agent), condition("Ready", "False", reason, message)]
    return node_device(node, conditions=conditions, **more)


def _read(server: FakeApiServer) -> list[str]:
    """NodeDevices that were read whole."""
    return [each.path for each in server.requests if "/nodedevices/" in each.path]


def test_whole_objects_are_read_only_where_they_have_more_to_say(run: Run, server: FakeApiServer) -> None:
    server.objects[NODE_DEVICES] += [node_device(f"n{number}") for number in range(1200)]
    assert run().status == 1
    assert _read(server) == [f"{NODE_DEVICES}/node-a.example.com.gpu"]
    lists = [each for each in server.requests if each.path == NODE_DEVICES]
    assert [each.query.get("includeObject") for each in lists] == ["None"]
    assert len(server.requests) <= 10


def test_a_driver_that_does_not_work_is_shown_beside_many_nodes_without_hardware(
    run: Run, server: FakeApiServer
) -> None:
    def empty(node: str, resource: str, message: str) -> dict[str, Any]:
        words = f"the device plugin lists no devices; {message}"
        return _node_device(node, "NoDevices", words, resource=resource, devices=[])

    server.objects[NODE_DEVICES] = [
        *(empty(f"n{at:03}", "example.com/usb", "no file of the host matches /dev/ttyUSB*") for at in range(200)),
        empty("gpu-node", "nvidia.com/gpu", "the NVIDIA library differs: reboot (DriverMismatch)"),
    ]
    del server.objects[PODS][1]
    ran = run()
    assert ran.status == 1
    line, command = ran.out.splitlines()[-2:]
    assert line.startswith("1. nvidia.com/gpu on gpu-node is not ready (")
    assert line.endswith("): DriverMismatch: the NVIDIA library differs: reboot")
    assert command == "   kubectl nodedevice why node gpu-node"
    assert len(_read(server)) <= 60


def test_one_cause_on_every_node_is_one_line(run: Run, server: FakeApiServer) -> None:
    """And it does not hide another."""
    server.objects[NODE_DEVICES] += [
        *(_node_device(f"n{at:03}", "LeaseExpired", "no renewal", "Unknown") for at in range(300)),
        _node_device("zebra", "RuntimeDisconnected", "no runtime"),
    ]
    found = json.loads(run("-o", "json").out)["needs"]
    assert [each["reason"] for each in found] == ["AgentSilent", "NotReady", "DeviceBroken", "PodUnschedulable"]
    assert "the agent on 300 nodes (n000, n001, n002 and 297 more) is silent" in found[0]["message"]
    assert "RuntimeDisconnected: no runtime" in found[1]["message"]
    assert len(_read(server)) <= 60


def test_whoever_sees_only_pods_sees_those(run: Run, server: FakeApiServer) -> None:
    words = 'User "eve" cannot list resource "nodedevices" in API group "nodedevice.io" at the cluster scope'
    server.fault = lambda request: status(403, words) if "/nodedevices" in request.path else None
    del server.objects[PODS][1]
    out = run("-n", "default").out
    assert "default    try  node-a  example.com/gpu=1  Healthy" in out
    remedy = "an administrator can bind the ClusterRole nodedevice-fleet-view to you"
    not_shown = f"Not shown: nodedevices: you may not list nodedevices; {remedy}\n"
    assert f"Nothing that you may see needs attention.\n{not_shown}" in out


def test_whoever_sees_the_pods_of_one_namespace_sees_those_that_wait_there(run: Run, server: FakeApiServer) -> None:
    server.fault = lambda request: status(403, "no") if request.path == PODS else None
    out = run("-n", "default").out
    assert "default/late is pending" in out
    assert "Not shown: pods of other namespaces: " in out
    assert "default/late" not in run("-n", "team").out


def test_each_kind_of_need(run: Run, server: FakeApiServer) -> None:
    """All at once, in their order."""
    broken = device("gpu-0", "Unhealthy", reason="Xid48")
    twice = [condition("Ready"), condition("AgentReady"), condition("OfferedTwice", message="also as b/c")]
    waiting = {"namespace": "default", "name": "late", "podUID": "u", "container": "c", "reason": "NotEnoughDevices"}
    server.objects[NODE_DEVICES] = [
        node_device("a", devices=[broken], allocated=1, allocations=[allocation()]),
        node_device("b", devices=[device("gpu-0"), device("gpu-1", "Unhealthy")], conditions=twice),
        _node_device("c", "DevicesNotInjected"),
        _node_device("d", "LeaseExpired", agent="Unknown"),
        _node_device("e", "ForeignOwner"),
        node_device("f", waiting=[waiting], waitingPods=1),
    ]
    config = server.objects[f"{OURS}/nodedeviceconfigs"][0]
    nowhere = condition("DevicesFound", "False", "NoMatch", "no node has a device of x")
    config["status"] = {"nodes": {"refused": 2}, "conditions": [condition("Conflict", "True"), nowhere]}
    for each in server.objects[LEASES]:
        each["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    found = json.loads(run("-o", "json").out)["needs"]
    assert [each["reason"] for each in found] == list(attention.ORDER)
    assert all(each["command"].startswith(("kubectl nodedevice ", "kubectl get ")) for each in found)
