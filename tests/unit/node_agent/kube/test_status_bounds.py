"""The lists and messages of a status are bounded, and what is left out is counted."""

import json
from uuid import UUID

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES
from nodedevice_agent.kube.status import MAX_IDS, MAX_LIST_BYTES
from nodedevice_api.parts import PartRules, Placement, part_id

from tests.unit.node_agent.devicemanager.scenario import Scenario, pod
from tests.unit.node_agent.kube.shown_status import status
from tests.unit.node_agent.kube.test_wire import ATTRIBUTES


@pytest.mark.parametrize(
    ("count", "omitted"),
    [
        pytest.param(256, 0, id="whole"),
        pytest.param(257, 256, id="one more: only the held one"),
        pytest.param(100_000, 99_999, id="a hundred thousand"),
    ],
)
def test_devices_left_out_are_counted(count: int, omitted: int) -> None:
    shown = status(Scenario.with_plugin([f"d{index:06}" for index in range(count)]).run(pod("p", gpu=1)))
    assert (shown["total"], shown["available"], shown["devicesOmitted"]) == (count, count - 1, omitted)
    assert shown["devices"][0]["id"] == "d000000"


def test_a_hundred_thousand_devices_of_a_stopped_plugin_fit() -> None:
    scenario = Scenario.with_plugin([f"d{index:06}" for index in range(100_000)])
    scenario.disconnect()
    shown = status(scenario)
    assert (shown["total"], shown["healthy"]) == (100_000, 0)
    assert (shown["devices"], shown["devicesOmitted"]) == ([], 100_000)
    assert len(json.dumps(shown)) < 2048


def test_a_broken_one_is_named_though_more_are_listed_before_it() -> None:
    ids = [f"d{index:06}" for index in range(MAX_NAMED_DEVICES + 1)]
    scenario = Scenario.with_plugin([*ids, Device("e", healthy=False)])
    shown = status(scenario.run(pod("p", gpu=MAX_NAMED_DEVICES + 1)))
    assert {d["id"] for d in shown["devices"] if d["health"] != "Healthy"} == {"e"}
    message = next(c["message"] for c in shown["conditions"] if c["type"] == "Healthy")
    assert message == f"1 of {MAX_NAMED_DEVICES + 2} devices are unhealthy: e (ReportedUnhealthy)"


@pytest.mark.parametrize("sign", list("<>&"))
def test_ids_that_the_api_server_stores_longer_fit(sign: str) -> None:
    """As six bytes each."""
    devices = [Device(f"{index:03}" + sign * 125, healthy=False) for index in range(3 * 256)]
    shown = status(Scenario.with_plugin(devices).run(pod("p", gpu=0)))
    stored = json.dumps(shown["devices"], separators=(",", ":")).replace(sign, "\\u0000")
    assert MAX_LIST_BYTES // 2 < len(stored) <= MAX_LIST_BYTES + MAX_NAMED_DEVICES
    assert shown["devicesOmitted"] + len(shown["devices"]) == 3 * 256


def test_what_is_not_healthy_comes_first_of_what_pods_hold() -> None:
    """Else a pod with so many devices keeps a broken one, and nobody is told."""
    ids = [f"device-{index:06}-{'x' * 100}" for index in range(5_000)]
    scenario = Scenario.with_plugin(ids).run(pod("p", gpu=4_990))
    scenario.lists([*ids[:4_000], Device(ids[4_000], healthy=False), *ids[4_001:]])
    shown = status(scenario)
    assert len(json.dumps(shown["devices"], separators=(",", ":"))) <= MAX_LIST_BYTES + MAX_NAMED_DEVICES
    listed = [device["id"] for device in shown["devices"]]
    assert (listed, ids[4_000] in listed) == (sorted(listed), True)
    (held,) = shown["allocations"]
    assert held["deviceIDs"] == [*ids[: MAX_IDS - 1], ids[4_000]]


@pytest.mark.parametrize(("pods", "kib"), [(40, 12), (110, 40)])
def test_eight_gpus_of_80_units_within_the_size_that_is_promised(pods: int, kib: int) -> None:
    uuids = [f"GPU-{UUID(int=2**127 + 7919 * index)}" for index in range(8)]
    parts = [Device(part_id(uuid, n), parent=uuid, numa_nodes=(0,)) for uuid in uuids for n in range(80)]
    parents = {uuid: Device(uuid, attributes=ATTRIBUTES) for uuid in uuids}
    scenario = Scenario.with_plugin(accept(parts, part_rules=PartRules(Placement.SAME_PARENT), parents=parents))
    uids = [str(UUID(int=2**126 + 104729 * index)) for index in range(pods)]
    scenario.run(*(replace(pod(uid, gpu=5), name=f"training-{index:05}") for index, uid in enumerate(uids)))
    shown = status(scenario)
    assert shown["allocated"] == 5 * pods
    assert len(json.dumps(shown, separators=(",", ":"))) <= kib * 1024
