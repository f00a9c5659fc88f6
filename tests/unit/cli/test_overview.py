"""The first screen: what is counted, what needs attention and in which order, and how little is read for it."""

import json
from typing import Any, Final

from kubectl_nodedevice import attention

from tests.unit.cli.api_server import FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import allocation, condition, device, node_device

_OURS: Final = "/apis/nodedevice.io/v1alpha1"


def _waiting(**more: Any) -> dict[str, Any]:
    return {
        "namespace": "default",
        "name": "late",
        "podUID": "u",
        "container": "c",
        "reason": "NotEnoughDevices",
        **more,
    }


def test_whole_objects_are_read_only_where_they_have_more_to_say(run: Run, server: FakeApiServer) -> None:
    server.objects[f"{_OURS}/nodedevices"] += [node_device(f"n{number}") for number in range(1200)]
    assert run().status == 1
    read = [each.path for each in server.requests if "/nodedevices/" in each.path]
    assert read == [f"{_OURS}/nodedevices/node-a.example.com.gpu"]
    lists = [each for each in server.requests if each.path == f"{_OURS}/nodedevices"]
    assert [each.query.get("includeObject") for each in lists] == ["None"]
    assert len(server.requests) <= 10


def test_a_driver_that_does_not_work_is_shown_beside_many_nodes_without_hardware(
    run: Run, server: FakeApiServer
) -> None:
    absent = "the device plugin lists no devices; no file of the host matches /dev/ttyUSB*"
    mismatch = "the device plugin lists no devices; the NVIDIA library differs: reboot (DriverMismatch)"
    server.objects[f"{_OURS}/nodedevices"] = [
        *(
            node_device(f"n{number:03}", "example.com/usb", [], conditions=_without_devices(absent))
            for number in range(200)
        ),
        node_device("gpu-node", "nvidia.com/gpu", [], conditions=_without_devices(mismatch)),
    ]
    del server.objects["/api/v1/pods"][1]
    ran = run()
    assert ran.status == 1
    line, command = ran.out.splitlines()[-2:]
    assert line.startswith("1. nvidia.com/gpu on gpu-node is not ready (")
    assert line.endswith("): DriverMismatch: the NVIDIA library differs: reboot")
    assert command == "   kubectl nodedevice why node gpu-node"
    assert sum("/nodedevices/" in each.path for each in server.requests) <= 60


def _without_devices(message: str) -> list[dict[str, Any]]:
    return [condition("AgentReady"), condition("Ready", "False", "NoDevices", message)]


def test_one_cause_on_every_node_is_one_line(run: Run, server: FakeApiServer) -> None:
    """And it does not hide another."""
    silent = [
        condition("AgentReady", "Unknown", "LeaseExpired"),
        condition("Ready", "False", "LeaseExpired", "no renewal"),
    ]
    gone = [condition("AgentReady"), condition("Ready", "False", "RuntimeDisconnected", "no runtime")]
    server.objects[f"{_OURS}/nodedevices"] += [node_device(f"n{number:03}", conditions=silent) for number in range(300)]
    server.objects[f"{_OURS}/nodedevices"].append(node_device("zebra", conditions=gone))
    found = json.loads(run("-o", "json").out)["needs"]
    assert [each["reason"] for each in found] == ["AgentSilent", "NotReady", "DeviceBroken", "PodUnschedulable"]
    assert "the agent on 300 nodes (n000, n001, n002 and 297 more) is silent" in found[0]["message"]
    assert "RuntimeDisconnected: no runtime" in found[1]["message"]
    assert sum("/nodedevices/" in each.path for each in server.requests) <= 60


def test_whoever_sees_only_pods_sees_those(run: Run, server: FakeApiServer) -> None:
    words = 'User "eve" cannot list resource "nodedevices" in API group "nodedevice.io" at the cluster scope'
    server.fault = lambda request: status(403, words) if "/nodedevices" in request.path else None
    del server.objects["/api/v1/pods"][1]
    ran = run("-n", "default")
    assert "default    try  node-a  example.com/gpu=1  Healthy" in ran.out
    remedy = "an administrator can bind the ClusterRole nodedevice-fleet-view to you"
    assert (
        f"Nothing that you may see needs attention.\nNot shown: nodedevices: you may not list nodedevices; {remedy}\n"
        in ran.out
    )


def test_whoever_sees_the_pods_of_one_namespace_sees_those_that_wait_there(run: Run, server: FakeApiServer) -> None:
    server.fault = lambda request: status(403, "no") if request.path == "/api/v1/pods" else None
    out = run("-n", "default").out
    assert "default/late is pending" in out
    assert "Not shown: pods of other namespaces: " in out
    assert "default/late" not in run("-n", "team").out


def test_each_kind_of_need(run: Run, server: FakeApiServer) -> None:
    """All at once, in their order."""
    broken = device("gpu-0", "Unhealthy", reason="Xid48")
    twice = [
        condition("Ready"),
        condition("AgentReady"),
        condition("OfferedTwice", "True", "OfferedTwice", "also as b/c"),
    ]
    server.objects[f"{_OURS}/nodedevices"] = [
        node_device("a", devices=[broken], allocated=1, allocations=[allocation()]),
        node_device("b", devices=[device("gpu-0"), device("gpu-1", "Unhealthy")], conditions=twice),
        node_device("c", conditions=[condition("Ready", "False", "DevicesNotInjected"), condition("AgentReady")]),
        node_device(
            "d",
            conditions=[
                condition("Ready", "False", "LeaseExpired"),
                condition("AgentReady", "Unknown", "LeaseExpired"),
            ],
        ),
        node_device("e", conditions=[condition("Ready", "False", "ForeignOwner"), condition("AgentReady")]),
        node_device("f", waiting=[_waiting()], waitingPods=1),
    ]
    config = server.objects[f"{_OURS}/nodedeviceconfigs"][0]
    nowhere = condition("DevicesFound", "False", "NoMatch", "no node has a device of x")
    config["status"] = {"nodes": {"refused": 2}, "conditions": [condition("Conflict", "True"), nowhere]}
    for each in server.objects["/apis/coordination.k8s.io/v1/leases"]:
        each["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    found = json.loads(run("-o", "json").out)["needs"]
    assert [each["reason"] for each in found] == list(attention.ORDER)
    assert all(each["command"].startswith(("kubectl nodedevice ", "kubectl get ")) for each in found)
