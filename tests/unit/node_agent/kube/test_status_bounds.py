"""The lists and messages of a status are bounded, and what is left out is counted."""

import json

import pytest
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES
from nodedevice_agent.kube.conditions import MAX_MESSAGE
from nodedevice_agent.kube.status import MAX_ALLOCATIONS, MAX_IDS, MAX_LIST_BYTES, MAX_WAITING

from tests.unit.node_agent.devicemanager.scenario import Scenario, calls, pod
from tests.unit.node_agent.kube.shown_status import TUESDAY, condition, status


class TestBounds:
    @pytest.mark.parametrize(
        ("count", "omitted"),
        [
            pytest.param(256, 0, id="whole"),
            pytest.param(257, 256, id="one more: only the held one"),
            pytest.param(100_000, 99_999, id="a hundred thousand"),
        ],
    )
    def test_devices_left_out_are_counted(self, count: int, omitted: int) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(count)]).run(pod("p", gpu=1))
        shown = status(scenario)
        assert (shown["total"], shown["available"], shown["devicesOmitted"]) == (count, count - 1, omitted)
        assert shown["devices"][0]["id"] == "d000000"

    def test_a_hundred_thousand_devices_of_a_stopped_plugin_fit(self) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(100_000)])
        scenario.disconnect()
        shown = status(scenario)
        assert (shown["total"], shown["healthy"]) == (100_000, 0)
        assert (shown["devices"], shown["devicesOmitted"]) == ([], 100_000)
        assert len(json.dumps(shown)) < 2048

    def test_a_broken_one_is_named_though_more_are_listed_before_it(self) -> None:
        scenario = Scenario()
        ids = [f"d{index:06}" for index in range(MAX_NAMED_DEVICES + 1)]
        scenario.plugin([*ids, Device("e", healthy=False)])
        scenario.run(pod("p", gpu=MAX_NAMED_DEVICES + 1))
        shown = status(scenario)
        assert {d["id"] for d in shown["devices"] if d["health"] != "Healthy"} == {"e"}
        message = next(c["message"] for c in shown["conditions"] if c["type"] == "Healthy")
        assert message == f"1 of {MAX_NAMED_DEVICES + 2} devices are unhealthy: e (ReportedUnhealthy)"

    def test_long_ids_that_are_not_ascii_fit(self) -> None:
        scenario = Scenario.with_plugin([f"{index:03}" + "☃" * 125 for index in range(256)])
        shown = status(scenario)
        assert len(json.dumps(shown["devices"]).encode()) <= MAX_LIST_BYTES + 3 * 256
        assert shown["devicesOmitted"] + len(shown["devices"]) == 256

    @pytest.mark.parametrize("sign", list("<>&"))
    def test_ids_that_the_api_server_stores_longer_fit(self, sign: str) -> None:
        """As six bytes each."""
        scenario = Scenario()
        scenario.plugin([Device(f"{index:03}" + sign * 125, healthy=False) for index in range(3 * 256)])
        scenario.run(pod("p", gpu=0))
        shown = status(scenario)
        stored = json.dumps(shown["devices"], separators=(",", ":")).replace(sign, "\\u0000")
        assert MAX_LIST_BYTES // 2 < len(stored) <= MAX_LIST_BYTES + MAX_NAMED_DEVICES
        assert shown["devicesOmitted"] + len(shown["devices"]) == 3 * 256

    @pytest.mark.kubelet("weak spot 28")
    def test_one_pod_with_a_hundred_thousand_devices_fits(self) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(100_000)]).run(pod("p", gpu=100_000))
        shown = status(scenario)
        assert (shown["allocated"], shown["available"]) == (100_000, 0)
        (held,) = shown["allocations"]
        assert (len(held["deviceIDs"]), held["deviceIDsOmitted"]) == (MAX_IDS, 100_000 - MAX_IDS)

    def test_what_is_not_healthy_comes_first_of_what_pods_hold(self) -> None:
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

    def test_two_thousand_pods_with_one_device_each_fit(self) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(2_000)])
        scenario.run(*(pod(f"{index:036}", gpu=1) for index in range(2_000)))
        shown = status(scenario)
        assert shown["allocated"] == 2_000
        assert 0 < len(shown["allocations"]) <= MAX_ALLOCATIONS
        assert shown["allocationsOmitted"] + len(shown["allocations"]) == 2_000

    def test_waiting_pods_are_bounded_in_number_and_words(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        for index in range(MAX_WAITING + 10):
            scenario.see(pod(f"p{index:03}", gpu=1))
        scenario.fail(calls(scenario.effects)[0], "☃" * 10_000)
        shown = status(scenario)
        assert 0 < len(shown["waiting"]) <= MAX_WAITING
        assert max(len(w["message"]) for w in shown["waiting"]) == 1024


def test_a_message_is_no_longer_than_the_crd_allows() -> None:
    scenario = Scenario.with_plugin(1)
    shown = status(scenario, notes="x" * 5000)
    _, _, message = condition(shown, "Registered")
    assert (len(message), message[-1]) == (MAX_MESSAGE, "…")
    # cut, it is as before
    assert status(scenario, shown, TUESDAY, notes="x" * 5000) == shown
