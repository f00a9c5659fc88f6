"""A resource whose devices are parts: shown by physical device, within the API's bounds."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.kube.observed import observed_status
from nodedevice_agent.kube.status import is_loss
from nodedevice_api.parts import PartRules, Placement, part_id

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod
from tests.unit.node_agent.devicemanager.scenario import status as status_of
from tests.unit.node_agent.kube import crd_rules

Json = dict[str, Any]
MONDAY = "2026-01-05T00:00:00Z"
RULES = PartRules(Placement.SAME_PARENT)
ATTRIBUTES = (("memoryBytes", "85899345920"), ("model", "NVIDIA H100 80GB HBM3"), ("pciBusID", "0000:1b:00.0"))


def parts(parent: str, count: int, healthy: int | None = None, **more: Any) -> list[Device]:
    good = count if healthy is None else healthy
    return [Device(part_id(parent, n), n < good, parent=parent, **more) for n in range(count)]


def node(*devices: Device, parents: tuple[Device, ...] = (), rules: PartRules = RULES) -> Scenario:
    scenario = Scenario()
    scenario.connect()
    by_id = {parent.id: parent for parent in parents}
    scenario.happens("listed", GPU, 1, accept(devices, part_rules=rules, parents=by_id))
    return scenario


def status(scenario: Scenario, before: Json | None = None) -> Json:
    shown = status_of(scenario, before or {}, MONDAY)
    assert crd_rules.problems(shown) == []
    return shown


def test_parents_are_shown_with_the_numbers_of_their_parts() -> None:
    gpus = Device("a", attributes=ATTRIBUTES)
    scenario = node(*parts("a", 8), *parts("b", 4, healthy=3, numa_nodes=(1,)), parents=(gpus,))
    scenario.run(pod("p", gpu=3))
    shown = status(scenario)
    assert shown["parts"] == {
        "placement": "SameParent",
        "choice": "BinPack",
        "containers": "Any",
        "advertise": "Sum",
        "largestAvailable": max(device["parts"]["available"] for device in shown["devices"]),
    }
    assert [device["id"] for device in shown["devices"]] == ["a", "b"]
    first, second = shown["devices"]
    assert first["attributes"] == dict(ATTRIBUTES)
    assert second["numaNodes"] == [1]
    assert (second["health"], second["reason"]) == ("Healthy", "ReportedUnhealthy")
    assert second["parts"]["healthy"] == 3
    assert sum(device["parts"]["allocated"] for device in shown["devices"]) == 3
    assert (shown["total"], shown["healthy"], shown["allocated"], shown["available"]) == (12, 11, 3, 8)
    (held,) = shown["allocations"]
    assert "deviceIDs" not in held
    assert [entry["parts"] for entry in held["parts"]] == [3]


@pytest.mark.parametrize(("count", "end"), [(3, ""), (4, ", …")])
def test_there_are_more_than_those_that_are_named(count: int, end: str) -> None:
    shown = status(node(*(part for n in range(count) for part in parts(f"g{n}", 4, healthy=2))))
    (healthy,) = (c for c in shown["conditions"] if c["type"] == "Healthy")
    named = ", ".join(f"g{n} (ReportedUnhealthy)" for n in range(3))
    assert healthy["message"] == f"{2 * count} of {4 * count} parts are unhealthy: {named}{end}"


def test_fewer_parts_on_the_largest_parent_are_a_loss_where_that_is_advertised() -> None:
    before = {"allocated": 4, "reserved": 0, "available": 8, "parts": {"advertise": "Largest", "largestAvailable": 6}}
    fewer, as_many = before | {"parts": {"advertise": "Largest", "largestAvailable": 5}}, before | {"available": 7}
    assert is_loss(observed_status(before), observed_status(fewer))
    assert not is_loss(observed_status(before), observed_status(as_many))


@pytest.mark.parametrize(("pods", "kib"), [(40, 12), (110, 40)])
def test_eight_gpus_of_80_units_within_the_size_that_is_promised(pods: int, kib: int) -> None:
    uuids = [f"GPU-{UUID(int=2**127 + 7919 * index)}" for index in range(8)]
    parents = tuple(Device(uuid, attributes=ATTRIBUTES) for uuid in uuids)
    scenario = node(*(part for uuid in uuids for part in parts(uuid, 80, numa_nodes=(0,))), parents=parents)
    names = [f"training-{index:05}" for index in range(pods)]
    uids = [str(UUID(int=2**126 + 104729 * index)) for index in range(pods)]
    scenario.run(*(replace(pod(uid, gpu=5), name=name) for uid, name in zip(uids, names, strict=True)))
    shown = status(scenario)
    assert shown["allocated"] == 5 * pods
    assert len(json.dumps(shown, separators=(",", ":"))) <= kib * 1024
