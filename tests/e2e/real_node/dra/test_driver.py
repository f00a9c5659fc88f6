"""What a DRA driver does beside giving whole devices out: shares, administrators' claims, taints, other pools; and its end."""

import json
from collections.abc import Iterator

import pytest
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.cluster.waiting import wait_until
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.lab import Json, Lab, claiming
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.fakes.dra import ADMIN_LABEL, Slices, claim, devices, resource_slice

DRIVER = "gpu.example.com"
MEMORY = "memory"
# the kubelet waits for half a minute before it deletes the slices of a driver that is gone
WIPED_SECONDS = 90.0


@pytest.fixture
def writing(nri_node: NodeUnderTest) -> Iterator[tuple[Lab, Slices]]:
    """A driver that prepares claims, and whose slices the test writes."""
    slices = Slices(nri_node.control_plane.client)
    with DraDriver(nri_node.control_plane, nri_node.node, DRIVER, None) as driver:
        lab = Lab(nri_node, driver)
        yield lab, slices
        lab.clear()
        slices.remove()


@pytest.fixture
def lab(nri_node: NodeUnderTest) -> Iterator[Lab]:
    with DraDriver(nri_node.control_plane, nri_node.node, DRIVER, 4) as driver:
        found = Lab(nri_node, driver)
        yield found
        found.clear()


def _gpu(name: str, **more: object) -> Json:
    capacity = {MEMORY: {"value": "80Gi"}}
    return {"name": name, "allowMultipleAllocations": True, "capacity": capacity, **more}


def _taint(effect: str) -> Json:
    return {"taints": [{"key": "vendor.example/fault", "value": "fan", "effect": effect}]}


def test_shares_administrators_and_taints(writing: tuple[Lab, Slices]) -> None:
    lab, slices = writing
    of, driver = lab.of, lab.driver
    node, where, of_class = of.node.name, of.namespace, driver.device_class
    gpus = [_gpu("gpu-0"), _gpu("gpu-1", **_taint("NoSchedule")), *devices(1, "whole")]
    slices.publish(resource_slice(f"{node}-gpus", driver.name, node, gpus))
    slices.publish(resource_slice(f"{node}-more", driver.name, node, devices(3), pool=f"{node}-more"))
    shown = lab.until_numbers(total=3, allocated=0, available=2)
    assert {device["id"]: device.get("taints", []) != [] for device in shown["devices"]} == {
        "gpu-0": False,
        "gpu-1": True,
        "whole-0": False,
    }
    lab.until_numbers(f"{node}-more", total=3, allocated=0, available=3)

    # two claims that share one device, each with a quarter of its memory
    of.control_plane.kubectl("label", "namespace", where, f"{ADMIN_LABEL}=true", "--overwrite")
    is_gpu = [{"cel": {"expression": f"'{MEMORY}' in device.capacity['{driver.name}']"}}]
    asked: Json = {"selectors": is_gpu, "capacity": {"requests": {MEMORY: "20Gi"}}}
    lab.apply(*(claim(name, where, of_class, **asked) for name in ("quarter-1", "quarter-2")))
    lab.apply(claim("admin", where, of_class, adminAccess=True))
    for name in ("quarter-1", "quarter-2", "admin"):
        of.run(claiming(f"pod-{name}", {"gpu": name}))
    lab.until_equal()
    shown = lab.until_numbers(total=3, allocated=1, available=1)
    rows = {row["name"]: row["claim"]["devices"] for row in shown["allocations"]}
    [first], [second] = rows["pod-quarter-1"], rows["pod-quarter-2"]
    assert (first["id"], second["id"]) == ("gpu-0", "gpu-0")
    assert first["shareID"] != second["shareID"]
    assert first["consumedCapacity"] == second["consumedCapacity"] == {MEMORY: "20Gi"}
    assert [found["adminAccess"] for found in rows["pod-admin"]] == [True]

    # a pod that may go on with its device keeps it, whatever the driver thinks of the device
    gpus[0] = _gpu("gpu-0", **_taint("NoSchedule"))
    slices.publish(resource_slice(f"{node}-gpus", driver.name, node, gpus, generation=2))
    of.until(lambda: lab.status()["available"] == 1 and _has_taint(lab, "gpu-0"), "the taint is shown")
    lab.until_equal()
    of.delete("pod-quarter-1", "pod-quarter-2", "pod-admin")
    lab.until_numbers(total=3, allocated=0, available=1)
    lab.until_equal()


def _has_taint(lab: Lab, device: str) -> bool:
    return any(found["id"] == device and found.get("taints") for found in lab.status()["devices"])


def test_a_driver_dies_and_comes_back(lab: Lab) -> None:
    of, where = lab.of, lab.of.namespace
    lab.apply(claim("kept", where, lab.driver.device_class))
    of.run(claiming("stays", {"all": "kept"}))
    lab.until_equal()
    held = lab.until_numbers(total=4, allocated=1, available=3)["allocations"]

    lab.driver.kill()
    wait_until(lambda: not lab.driver.slices(), "the kubelet has deleted its slices", WIPED_SECONDS)
    # no device can be given out, and the pod that holds one keeps it
    gone = lab.until_numbers(allocated=1, available=0, healthy=0)
    assert [row["deviceIDs"] for row in gone["allocations"]] == [row["deviceIDs"] for row in held]
    assert gone["agent"]["servedBy"] == names.SERVED_BY_DRA

    lab.driver.start()
    back = lab.until_numbers(total=4, allocated=1, available=3)
    assert back["allocations"] == held
    lab.until_equal()
    [state] = of.pod("stays")["status"]["containerStatuses"]
    assert state["restartCount"] == 0
    of.delete("stays")
    lab.until_numbers(total=4, allocated=0, available=4)
    lab.until_equal()


def test_a_cordon_is_answered_with_the_rule_that_works(lab: Lab) -> None:
    of, where = lab.of, lab.of.namespace
    lab.apply(*(claim(name, where, lab.driver.device_class) for name in ("before", "after")))
    of.run(claiming("has-one", {"all": "before"}))
    lab.until_equal()
    kubectl = of.control_plane.kubectl
    name = names.node_device_name(of.node.name, f"{DRIVER}/devices")
    cordon = {"spec": {"cordonedDevices": [{"id": names.ALL_DEVICES, "reason": "fan"}]}}
    kubectl("patch", "nodedevice", name, "--type=merge", "-p", json.dumps(cordon))

    def answer() -> str:
        said = {each["type"]: each for each in lab.status()["conditions"]}[Condition.REGISTERED]
        return said["message"] if said["reason"] == Reason.CORDON_NOT_POSSIBLE else ""

    of.until(lambda: bool(answer()), "the cordon is answered")
    rule = kubectl("create", "-f", "-", "-o", "name", stdin=answer()[answer().index("{") :]).strip()
    of.create(claiming("waits", {"all": "after"}))
    of.wait("waits", _is_unschedulable, "is refused by the scheduler")
    assert lab.until_numbers(allocated=1)["allocations"][0]["name"] == "has-one"
    kubectl("delete", rule)
    of.wait_running("waits")
    lab.until_equal()
    lab.until_numbers(total=4, allocated=2, available=2)


def _is_unschedulable(found: Json) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def test_restarts_of_agent_and_kubelet_lose_nobody(lab: Lab) -> None:
    of, where = lab.of, lab.of.namespace
    lab.apply(claim("kept", where, lab.driver.device_class, 2))
    for name in ("first", "second"):
        of.run(claiming(name, {"all": "kept"}))
    lab.until_equal()
    held = lab.until_numbers(total=4, allocated=2, available=2)["allocations"]

    of.agent.kill()
    of.start_agent()
    # a pod that starts after it: what was published before it is not what is waited for
    of.run(claiming("plain"))
    lab.until_equal()
    assert lab.until_numbers(total=4, allocated=2, available=2)["allocations"] == held

    # the kubelet deletes the slices of its node when it starts, and the driver publishes them again
    before = {found["metadata"]["uid"] for found in lab.driver.slices()}
    of.node.kubelet.kill()
    of.node.start_kubelet()
    of.until(lambda: _are_others(lab, before), "the driver has published its slices again")
    of.node.wait_ready()
    of.delete("second")
    lab.until_equal()
    shown = lab.until_numbers(total=4, allocated=2, available=2)["allocations"]
    assert shown == [row for row in held if row["name"] == "first"]
    of.delete("first", "plain")
    lab.until_numbers(total=4, allocated=0, available=4)


def _are_others(lab: Lab, before: set[str]) -> bool:
    return bool(now := {found["metadata"]["uid"] for found in lab.driver.slices()}) and before.isdisjoint(now)
