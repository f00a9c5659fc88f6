"""Cordons: one patch of the version that was read, nobody's is lost, and what is shown of each."""

import json
from typing import Final

import pytest

from tests.unit.cli.api_server import Answer, FakeApiServer, Request
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import NODE_DEVICES, device
from tests.unit.cli.test_cordon_command import stored


def test_two_people_at_once_lose_nothing(run: Run, server: FakeApiServer) -> None:
    """Bob cordons between each reading and its patch, until he has no more devices."""
    bobs = ["gpu-0", "gpu-2"]

    def fault(request: Request) -> None:
        found = server.objects[NODE_DEVICES][0]
        if request.method == "PATCH" and bobs:
            found["spec"]["cordonedDevices"].append({"id": bobs.pop(0), "by": "bob", "reason": "ecc"})
            found["metadata"]["resourceVersion"] += "0"

    server.fault = fault
    server.objects[NODE_DEVICES][0]["status"]["devices"].append(device("gpu-3"))
    run("cordon", "node-a", "--device", "gpu-3", "--reason", "fan", "--wait", "0")
    assert [each["id"] for each in stored(server, "node-a")] == ["gpu-1", "gpu-0", "gpu-2", "gpu-3"]
    assert sum(each.method == "PATCH" for each in server.requests) == 3


def _serve_rules(server: FakeApiServer) -> None:
    """As the API server does since 1.37."""
    rules = Answer(200, json.dumps({"kind": "APIResourceList", "resources": [{"name": "devicetaintrules"}]}).encode())
    server.fault = lambda request: rules if request.path == "/apis/resource.k8s.io/v1" else None


def _offer(server: FakeApiServer, served_by: str = "dra") -> None:
    """Another program serves the devices, not an agent."""
    del server.objects[NODE_DEVICES][0]
    server.objects[NODE_DEVICES][0]["status"] |= {"agent": {"servedBy": served_by}, "driver": "d", "pool": "p"}


@pytest.mark.parametrize(
    ("served_by", "way"),
    [
        ("kubelet", "or let nodedevice allocate it (docs/device-plugins.md)"),
        ("dra", "DeviceTaintRule with deviceSelector {driver: d, pool: p"),
    ],
)
def test_what_others_give_out(run: Run, server: FakeApiServer, served_by: str, way: str) -> None:
    _serve_rules(server)
    _offer(server, served_by)
    for arguments in (["node-b", "--device", "gpu-0"], ["--resource", "example.com/gpu", "--all-nodes", "--yes"]):
        ran = run("cordon", *arguments, "--reason", "fan")
        assert (ran.status, way in ran.err, "kubectl cordon node-b" in ran.err) == (2, True, True), ran


_OF_ONE: Final = "{driver: d, pool: p, device: gpu-0} and a taint of effect NoSchedule does"


@pytest.mark.parametrize(
    ("device_ids", "selector"),
    [
        (["gpu-0"], f"{_OF_ONE}; kubectl"),
        (["gpu-0", "gpu-1"], f"{_OF_ONE}, and one for each of gpu-1"),
        (["*"], "{driver: d, pool: p} and"),
        (["all", "gpu-0"], "{driver: d, pool: p} and"),
    ],
)
def test_of_a_drivers_devices_the_rule_that_does_it(
    run: Run, server: FakeApiServer, device_ids: list[str], selector: str
) -> None:
    _offer(server)
    arguments = ["cordon", "node-b", *(word for each in device_ids for word in ("--device", each)), "--reason", "fan"]
    # ... where the API server serves such rules for good
    ran = run(*arguments)
    assert "only its driver can, by a taint in its ResourceSlices; kubectl cordon node-b" in ran.err
    assert "DeviceTaintRule" not in ran.err
    _serve_rules(server)
    assert f"a DeviceTaintRule with deviceSelector {selector}" in run(*arguments).err


@pytest.mark.parametrize("device_id", ["gpu-0", "gone", "*"])
def test_a_cordon_without_effect_can_be_lifted(run: Run, server: FakeApiServer, device_id: str) -> None:
    _offer(server)
    server.objects[NODE_DEVICES][0]["spec"]["cordonedDevices"] = [{"id": device_id, "by": "alice"}]
    ran = run("uncordon", "node-b", "--device", device_id)
    assert (ran.status, stored(server), "not in force" in ran.out) == (0, [], False), ran
    assert "has no effect" in run("uncordon", "node-b", "--device", "gpu-0").err
