"""Cordons: one patch of the version that was read, nobody's is lost, and what is shown of each."""

import json
from typing import Final

import pytest

from tests.unit.cli.api_server import Answer, FakeApiServer, Request
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import device

_KIND: Final = "/apis/nodedevice.io/v1alpha1/nodedevices"


def _stored(server: FakeApiServer, node: str = "node-a") -> list[dict[str, str]]:
    return next(
        each["spec"].get("cordonedDevices", []) for each in server.objects[_KIND] if each["spec"]["nodeName"] == node
    )


def _honour(server: FakeApiServer) -> None:
    """Play the agents: what is cordoned shows in the status."""
    for found in server.objects[_KIND]:
        ids = {each["id"] for each in found["spec"].get("cordonedDevices", [])}
        cordoned = 0
        for each in found["status"]["devices"]:
            each.pop("cordonedSince", None)
            if each["id"] in ids or ids & {"*", "all"}:
                each["cordonedSince"] = "2026-11-28T10:00:00Z"
                cordoned += 1
        found["status"]["cordoned"] = cordoned


@pytest.fixture
def agents(server: FakeApiServer) -> FakeApiServer:
    """The server, with agents that honour each cordon at once."""

    def honour(_: Request) -> Answer | None:
        _honour(server)
        return None

    server.fault = honour
    return server


def test_a_free_device(run: Run, agents: FakeApiServer) -> None:
    ran = run("cordon", "node-b", "--device", "gpu-1", "--reason", "fan")
    assert ran.out == "gpu-1 on node-b: cordoned; free, so it is out of service now\n"
    [stored] = _stored(agents, "node-b")
    assert (stored["id"], stored["by"], stored["reason"]) == ("gpu-1", "alice", "fan")
    assert stored["at"].endswith("Z")
    assert ran.status == 0
    assert run("uncordon", "node-b", "--device", "gpu-1").out == "gpu-1 on node-b: uncordoned; free now\n"
    assert _stored(agents, "node-b") == []


def test_anothers_cordon_stays(run: Run, agents: FakeApiServer) -> None:
    before = json.dumps(_stored(agents))
    ran = run("uncordon", "node-a", "--device", "gpu-1")
    assert ran.out == "gpu-1 on node-a: cordoned by bob: ecc; --take-over lifts it all the same\n"
    assert ran.status == 1
    assert run("cordon", "node-a", "--device", "gpu-1", "--reason", "fan").status == 1
    assert json.dumps(_stored(agents)) == before
    assert "it was cordoned by bob: ecc" in run("uncordon", "node-a", "--device", "gpu-1", "--take-over").out
    assert _stored(agents) == []


def test_two_people_at_once_lose_nothing(run: Run, agents: FakeApiServer) -> None:
    """Bob cordons between each reading and its patch, until he has no more devices."""
    bobs = iter(["gpu-0", "gpu-2"])

    def fault(request: Request) -> Answer | None:
        _honour(agents)
        if request.method == "PATCH":
            for bobs_id in bobs:
                found = agents.objects[_KIND][0]
                found["spec"]["cordonedDevices"].append({"id": bobs_id, "by": "bob", "reason": "ecc"})
                found["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
                break
        return None

    agents.fault = fault
    agents.objects[_KIND][0]["status"]["devices"].append(device("gpu-3"))
    ran = run("cordon", "node-a", "--device", "gpu-3", "--reason", "fan")
    assert ran.status == 0, ran
    assert [each["id"] for each in _stored(agents)] == ["gpu-1", "gpu-0", "gpu-2", "gpu-3"]
    assert sum(each.method == "PATCH" for each in agents.requests) == 3


def _serve_rules(server: FakeApiServer) -> None:
    """As the API server does since 1.37."""
    kinds = {"kind": "APIResourceList", "resources": [{"name": "devicetaintrules"}]}

    def rules(request: Request) -> Answer | None:
        return Answer(200, json.dumps(kinds).encode()) if request.path == "/apis/resource.k8s.io/v1" else None

    server.fault = rules


@pytest.mark.parametrize(
    ("served_by", "way"),
    [
        ("kubelet", "or let nodedevice allocate it (docs/device-plugins.md)"),
        ("dra", "DeviceTaintRule with deviceSelector {driver: d, pool: p"),
    ],
)
def test_what_others_give_out(run: Run, server: FakeApiServer, served_by: str, way: str) -> None:
    _serve_rules(server)
    found = server.objects[_KIND][1]["status"]
    found |= {"agent": {"servedBy": served_by}, "driver": "d", "pool": "p"}
    for arguments in (["node-b", "--device", "gpu-0"], ["--resource", "example.com/gpu", "--all-nodes", "--yes"]):
        server.objects[_KIND] = server.objects[_KIND][-1:]
        ran = run("cordon", *arguments, "--reason", "fan")
        assert ran.status == 2
        assert way in ran.err, ran
        assert "kubectl cordon node-b" in ran.err


def _offer_by_driver(server: FakeApiServer) -> None:
    server.objects[_KIND] = server.objects[_KIND][-1:]
    server.objects[_KIND][0]["status"] |= {"agent": {"servedBy": "dra"}, "driver": "d", "pool": "p"}


@pytest.mark.parametrize(
    ("device_ids", "selector"),
    [
        (["gpu-0"], "{driver: d, pool: p, device: gpu-0} and a taint of effect NoSchedule does; kubectl"),
        (
            ["gpu-0", "gpu-1"],
            "{driver: d, pool: p, device: gpu-0} and a taint of effect NoSchedule does, and one for each of gpu-1",
        ),
        (["*"], "{driver: d, pool: p} and"),
        (["all", "gpu-0"], "{driver: d, pool: p} and"),
    ],
)
def test_of_a_drivers_devices_the_rule_that_does_it(
    run: Run, server: FakeApiServer, device_ids: list[str], selector: str
) -> None:
    _offer_by_driver(server)
    arguments = ["cordon", "node-b", *(word for each in device_ids for word in ("--device", each)), "--reason", "fan"]
    # ... where the API server serves such rules for good
    ran = run(*arguments)
    assert "only its driver can, by a taint in its ResourceSlices; kubectl cordon node-b" in ran.err
    assert "DeviceTaintRule" not in ran.err
    _serve_rules(server)
    assert f"a DeviceTaintRule with deviceSelector {selector}" in run(*arguments).err


@pytest.mark.parametrize("device_id", ["gpu-0", "gone", "*"])
def test_a_cordon_without_effect_can_be_lifted(run: Run, server: FakeApiServer, device_id: str) -> None:
    _offer_by_driver(server)
    server.objects[_KIND][0]["spec"]["cordonedDevices"] = [{"id": device_id, "by": "alice"}]
    ran = run("uncordon", "node-b", "--device", device_id)
    assert (ran.status, _stored(server, "node-b")) == (0, []), ran
    assert "not in force" not in ran.out
    assert "has no effect" in run("uncordon", "node-b", "--device", "gpu-0").err


def test_all_nodes(run: Run, agents: FakeApiServer) -> None:
    agents.objects[_KIND][1]["spec"]["cordonedDevices"] = [{"id": "all", "by": "alice", "reason": "move"}]
    ran = run("cordon", "--resource", "example.com/gpu", "--all-nodes", "--reason", "move", "--yes")
    assert "1 node cordoned: node-a" in ran.out
    assert "1 node had it already: node-b" in ran.out
    assert [each["id"] for each in _stored(agents)] == ["gpu-1", "*"]
    ran = run("uncordon", "--resource", "example.com/gpu", "--all-nodes", "--yes")
    assert "2 nodes uncordoned: node-a, node-b" in ran.out
    assert [each["id"] for each in _stored(agents)] == ["gpu-1"]
