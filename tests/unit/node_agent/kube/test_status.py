"""The encoded status: exact numbers, bounded lists, time stamps that change only with their entries."""

import json
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.allocation.allocations import MAX_SINCE
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES, snapshot
from nodedevice_agent.kube.status import (
    MAX_ALLOCATIONS,
    MAX_IDS,
    MAX_LIST_BYTES,
    MAX_MESSAGE,
    MAX_WAITING,
    is_bulk,
    is_loss,
    node_device_status,
)

from tests.unit.node_agent.devicemanager.scenario import GPU, WITH_PREFERENCES, Scenario, calls, device_ids, pod
from tests.unit.node_agent.devicemanager.scenario import status as status_of
from tests.unit.node_agent.kube import crd_rules

Json = dict[str, Any]

MONDAY, TUESDAY = "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"
SUNDAY_NOON = 1_767_528_000
# etcd's bound is 1.5 MiB; the operator's part and the metadata need room as well
MAX_OBJECT_BYTES = 1024 * 1024


def status(scenario: Scenario, before: Json | None = None, wall_time: str = MONDAY, **more: str) -> Json:
    """The status, which the API server would take."""
    shown = status_of(scenario, before or {}, wall_time, **more)
    assert crd_rules.problems(shown) == []
    assert len(json.dumps(shown)) <= MAX_OBJECT_BYTES
    return shown


def condition(shown: Json, kind: str) -> tuple[str, str, str]:
    (found,) = (c for c in shown["conditions"] if c["type"] == kind)
    return found["status"], found["reason"], found["message"]


def test_every_rule_of_the_crd_is_checked_here() -> None:
    assert crd_rules.rules_of_one_side() == set()


def test_one_of_everything() -> None:
    scenario = Scenario()
    devices = [Device("d0", numa_nodes=(0, 1)), Device("d1"), Device("d2", healthy=False)]
    scenario.plugin(devices, options=WITH_PREFERENCES)
    scenario.run(pod("uid-p", gpu=1), pod("uid-q", gpu=2))
    scenario.cordon(GPU, ["d1"])
    shown = status(scenario)
    assert shown | {"conditions": []} == {
        "total": 3,
        "healthy": 2,
        "cordoned": 1,
        "allocated": 1,
        "releasing": 0,
        "reserved": 0,
        "available": 0,
        "endpoint": {
            "state": "Running",
            "since": MONDAY,
            "preStartRequired": False,
            "getPreferredAllocationAvailable": True,
        },
        "agent": {"version": "1.2.3", "runtime": "none", "servedBy": "nodedevice"},
        "devices": [
            {"id": "d0", "health": "Healthy", "presence": "Present", "since": MONDAY, "numaNodes": [0, 1]},
            {"id": "d1", "health": "Healthy", "presence": "Present", "since": MONDAY, "cordonedSince": MONDAY},
            {
                "id": "d2",
                "health": "Unhealthy",
                "presence": "Present",
                "since": MONDAY,
                "reason": "ReportedUnhealthy",
                "message": "the device plugin reports it unhealthy",
            },
        ],
        "devicesOmitted": 0,
        "allocations": [
            {
                "namespace": "default",
                "name": "uid-p",
                "podUID": "uid-p",
                "container": "main",
                "deviceIDs": ["d0"],
                "since": MONDAY,
            }
        ],
        "allocationsOmitted": 0,
        "waiting": [
            {
                "namespace": "default",
                "name": "uid-q",
                "podUID": "uid-q",
                "container": "main",
                "reason": "NotEnoughDevices",
                "message": "2 of example.com/gpu needed, but fewer are available",
                "since": MONDAY,
            }
        ],
        "rememberedCordons": [],
        "conditions": [],
    }


def test_static_pods_are_shown_by_the_uid_of_the_api_and_sorted_by_it() -> None:
    """The runtime knows them by another UID than the API, and readers of the status use the API."""
    scenario = Scenario.with_plugin(2)
    scenario.run(pod("aaa", gpu=1, api_uid="zzz"), pod("mmm", gpu=1), pod("bbb", gpu=1, api_uid="yyy"))
    shown = status(scenario)
    assert [a["podUID"] for a in shown["allocations"]] == ["mmm", "zzz"]
    assert [w["podUID"] for w in shown["waiting"]] == ["yyy"]
    assert status(scenario, shown, TUESDAY) == shown


@pytest.mark.parametrize("uids", [[], ["p"], ["q"], ["p", "q"]], ids=",".join)
def test_not_injected_marks_allocations_and_waiting_containers(uids: list[str]) -> None:
    scenario = Scenario.with_plugin(1).run(pod("p", gpu=1), pod("q", gpu=1))
    now = snapshot(scenario.manager, GPU, lambda uid, container, resource_name: uid in uids)
    shown = node_device_status(now, {}, wall_time=MONDAY, version="1", runtime="nri")
    found = [entry["podUID"] for entry in shown["allocations"] + shown["waiting"] if entry.get("notInjected")]
    assert found == uids
    assert crd_rules.problems(shown) == []


class TestSince:
    def test_equal_state_gives_an_equal_status(self) -> None:
        scenario = Scenario.with_plugin([*device_ids(4), Device("sick", healthy=False)], waits_for_runtime=True)
        scenario.run(pod("p", gpu=1), pod("q", gpu=1), pod("r", gpu=9))
        scenario.gone("q")
        scenario.cordon(GPU, ["d1"])
        first = status(scenario)
        assert status(scenario, first, TUESDAY) == first

    def test_a_restart_gives_an_equal_status(self) -> None:
        scenario = Scenario.with_plugin(4)
        pods = [pod("p", gpu=1), pod("q", gpu=9)]
        scenario.run(*pods)
        first = status(scenario)
        again = scenario.restarted()
        again.plugin(4)
        again.happens("pods_synced", pods)
        assert status(again, first, TUESDAY) == first

    @pytest.mark.parametrize(
        ("wall_clock", "observed", "shown"),
        [
            pytest.param(0, None, TUESDAY, id="known nowhere"),
            pytest.param(0, MONDAY, MONDAY, id="in the API alone"),
            pytest.param(SUNDAY_NOON, None, "2026-01-04T12:00:00Z", id="here alone: the object was deleted"),
            pytest.param(SUNDAY_NOON, MONDAY, "2026-01-04T12:00:00Z", id="here, whatever the API has"),
            pytest.param(1, None, "1970-01-01T00:00:01Z", id="a clock that was never set"),
            pytest.param(SUNDAY_NOON + 10**8, MONDAY, "2029-03-06T21:46:40Z", id="a clock that was set back since"),
            pytest.param(MAX_SINCE, None, "9999-12-31T23:59:59Z", id="the last one"),
        ],
    )
    def test_of_an_allocation_is_the_response_of_its_plugin(
        self, wall_clock: int, observed: str | None, shown: str
    ) -> None:
        scenario = Scenario.with_plugin(1)
        scenario.wall_clock = wall_clock
        scenario.run(pod("p", gpu=1))
        before = {"allocations": [{"podUID": "p", "container": "main", "since": observed}]} if observed else {}
        first = status(scenario, before, TUESDAY)
        assert first["allocations"][0]["since"] == shown
        assert status(scenario, first, "2026-01-07T00:00:00Z") == first

    @pytest.mark.parametrize("is_lost", [False, True], ids=["with the object", "without the object"])
    def test_of_an_allocation_survives_a_restart(self, is_lost: bool) -> None:
        scenario = Scenario.with_plugin(1)
        scenario.wall_clock = SUNDAY_NOON
        scenario.run(pod("p", gpu=1))
        first = status(scenario)
        again = Scenario(decode(encode(scenario.manager.checkpoint())))
        again.plugin(1)
        again.happens("pods_synced", [pod("p", gpu=1)])
        shown = status(again, {} if is_lost else first, TUESDAY)
        assert shown["allocations"] == first["allocations"]

    def test_of_a_device_moves_with_its_health_alone(self) -> None:
        scenario = Scenario.with_plugin(2)
        first = status(scenario)
        scenario.lists(["d0", Device("d1", healthy=False)])
        second = status(scenario, first, TUESDAY)
        assert [d["since"] for d in second["devices"]] == [MONDAY, TUESDAY]

    def test_the_time_of_a_cordon_stays_until_it_is_set_again(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.cordon(GPU, ["d0"])
        first = status(scenario)
        assert status(scenario, first, TUESDAY)["devices"][0]["cordonedSince"] == MONDAY
        scenario.cordon(GPU, [])
        second = status(scenario, first, TUESDAY)
        assert "cordonedSince" not in second["devices"][0]
        scenario.cordon(GPU, ["*"])
        assert status(scenario, second, TUESDAY)["devices"][0]["cordonedSince"] == TUESDAY

    def test_of_the_endpoint_and_its_condition_move_with_the_state(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        first = status(scenario)
        scenario.disconnect()
        second = status(scenario, first, TUESDAY)
        assert (second["endpoint"]["state"], second["endpoint"]["since"]) == ("Stopped", TUESDAY)
        moved = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
        assert moved == {"Registered": TUESDAY, "Healthy": TUESDAY, "Injectable": MONDAY, "WatchesCurrent": MONDAY}

    def test_of_a_condition_stays_while_only_its_reason_changes(self) -> None:
        scenario = Scenario.with_plugin(3)
        scenario.lists([Device("d0", healthy=False), "d1", "d2"])
        first = status(scenario)
        scenario.lists([Device(name, healthy=False) for name in device_ids(3)])
        second = status(scenario, first, TUESDAY)
        assert condition(first, "Healthy")[1] == "SomeDevicesUnhealthy"
        assert condition(second, "Healthy")[1] == "NoHealthyDevices"
        assert {c["lastTransitionTime"] for c in second["conditions"]} == {MONDAY}

    def test_of_a_waiting_pod_moves_with_its_reason(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.see(pod("p", gpu=2))
        first = status(scenario)
        scenario.lists([])
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == MONDAY
        scenario.disconnect()
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == TUESDAY

    def test_a_pod_that_the_api_forgot_keeps_its_name(self) -> None:
        scenario = Scenario.with_plugin(["d0"]).run(pod("p", gpu=1))
        first = status(scenario)
        again = scenario.restarted()
        again.plugin(["d0"])
        assert status(again, first, TUESDAY) == first

    def test_conditions_of_other_writers_are_ignored(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        first = status(scenario)
        foreign = {"type": "Ready", "status": "True", "reason": "R", "lastTransitionTime": MONDAY}
        standing = {**first, "conditions": [foreign, *reversed(first["conditions"])]}
        assert status(scenario, standing, TUESDAY) == first

    @pytest.mark.parametrize(
        "standing",
        [
            pytest.param({"devices": [{"id": "d0", "health": "Healthy"}]}, id="a device without the rest"),
            pytest.param({"conditions": [{"type": "Healthy"}], "endpoint": {}}, id="parts that are empty"),
            pytest.param({"allocations": [{"podUID": "p", "container": "main"}], "waiting": []}, id="half a holder"),
        ],
    )
    def test_the_observed_status_may_be_anything(self, standing: Json) -> None:
        scenario = Scenario.with_plugin(["d0"]).run(pod("p", gpu=1))
        assert status(scenario, standing)["total"] == 1


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
        assert "e" not in {device["id"] for device in shown["devices"]}
        message = next(c["message"] for c in shown["conditions"] if c["type"] == "Healthy")
        assert message == f"1 of {MAX_NAMED_DEVICES + 2} devices are unhealthy: e (ReportedUnhealthy)"

    def test_long_ids_that_are_not_ascii_fit(self) -> None:
        scenario = Scenario.with_plugin([f"{index:03}" + "☃" * 125 for index in range(256)])
        shown = status(scenario)
        assert len(json.dumps(shown["devices"]).encode()) <= MAX_LIST_BYTES + 3 * 256
        assert shown["devicesOmitted"] + len(shown["devices"]) == 256

    @pytest.mark.kubelet("weak spot 28")
    def test_one_pod_with_a_hundred_thousand_devices_fits(self) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(100_000)]).run(pod("p", gpu=100_000))
        shown = status(scenario)
        assert (shown["allocated"], shown["available"]) == (100_000, 0)
        (held,) = shown["allocations"]
        assert (len(held["deviceIDs"]), held["deviceIDsOmitted"]) == (MAX_IDS, 100_000 - MAX_IDS)

    def test_two_thousand_pods_with_one_device_each_fit(self) -> None:
        scenario = Scenario.with_plugin([f"d{index:06}" for index in range(2_000)])
        scenario.run(*(pod(f"{index:036}", gpu=1) for index in range(2_000)))
        shown = status(scenario)
        assert shown["allocated"] == 2_000
        assert 0 < len(shown["allocations"]) <= MAX_ALLOCATIONS
        assert shown["allocationsOmitted"] + len(shown["allocations"]) == 2_000

    def test_the_longest_ids_and_the_most_of_them_fit(self) -> None:
        scenario = Scenario.with_plugin([f"{index:05}" + "☃" * 123 for index in range(3_000)])
        scenario.run(*(pod(f"{index:036}", gpu=1_000) for index in range(3)))
        assert status(scenario)["allocated"] == 3_000

    def test_waiting_pods_are_bounded_in_number_and_words(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        for index in range(MAX_WAITING + 10):
            scenario.see(pod(f"p{index:03}", gpu=1))
        scenario.fail(calls(scenario.effects)[0], "☃" * 10_000)
        shown = status(scenario)
        assert 0 < len(shown["waiting"]) <= MAX_WAITING
        assert max(len(w["message"]) for w in shown["waiting"]) == 1024

    def test_what_is_wrong_now_comes_before_notes_of_the_start(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        shown = status(scenario, unsaved="cannot write it", notes="the checkpoint could not be read")
        assert condition(shown, "Registered") == ("True", "CheckpointNotWritten", "cannot write it")

    def test_notes_are_bounded(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        assert condition(status(scenario, notes="the checkpoint could not be read"), "Registered")[1:] == (
            "CheckpointUnreadable",
            "the checkpoint could not be read",
        )


class TestConditions:
    @pytest.mark.parametrize(
        ("devices", "expected"),
        [
            pytest.param([], ("False", "NoDevices"), id="none"),
            pytest.param(["d0"], ("True", "AllHealthy"), id="all healthy"),
            pytest.param(["d0", Device("d1", healthy=False)], ("False", "SomeDevicesUnhealthy"), id="some"),
            pytest.param([Device("d1", healthy=False)], ("False", "NoHealthyDevices"), id="no healthy one"),
        ],
    )
    def test_healthy(self, devices: list[str | Device], expected: tuple[str, str]) -> None:
        scenario = Scenario.with_plugin(devices)
        assert condition(status(scenario), "Healthy")[:2] == expected

    def test_healthy_names_a_few_of_the_broken(self) -> None:
        scenario = Scenario.with_plugin([Device(name, healthy=False) for name in device_ids(5)])
        named = ", ".join(f"{name} (ReportedUnhealthy)" for name in ("d0", "d1", "d2"))
        assert condition(status(scenario), "Healthy")[2] == f"5 of 5 devices are unhealthy: {named}, …"

    def test_registered(self) -> None:
        scenario = Scenario()
        steps: list[tuple[Any, Any, tuple[str, str]]] = [
            (scenario.connect, GPU, ("False", "DeviceListPending")),
            (scenario.lists, ["d0"], ("True", "EndpointRunning")),
            (scenario.lists, ["d0", "d0"], ("True", "DevicesRefused")),
            (scenario.disconnect, GPU, ("False", "EndpointStopped")),
            (scenario.passes, 300, ("False", "EndpointGone")),
        ]
        for event, argument, expected in steps:
            event(argument)
            assert condition(status(scenario), "Registered")[:2] == expected

    def test_injectable_is_false_without_a_runtime(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        assert condition(status(scenario), "Injectable")[:2] == ("False", "RuntimeNone")

    def test_watches_current(self) -> None:
        now = snapshot(Scenario.with_plugin(["d0"]).manager, GPU)
        shown = [
            condition(
                node_device_status(now, {}, wall_time=MONDAY, version="1", runtime="none", is_watch_stale=is_stale),
                "WatchesCurrent",
            )
            for is_stale in (False, True)
        ]
        assert [found[:2] for found in shown] == [("True", "WatchesCurrent"), ("False", "WatchStale")]
        assert "check proxies and load balancers" in shown[1][2]


WELL = Device("a", attributes=(("model", "H100"), ("pciBusID", "0000:1b:00.0")))
BROKEN = Device("b", False, (), "Xid79", "Xid 79: reset it", (("model", "H100"),))


class TestDetails:
    """What a plugin reports beyond v1beta1."""

    def test_attributes_and_reasons_of_devices(self) -> None:
        shown = status(Scenario.with_plugin([WELL, BROKEN]))
        first, second = shown["devices"]
        assert first["attributes"] == {"model": "H100", "pciBusID": "0000:1b:00.0"}
        assert "reason" not in first
        assert (second["reason"], second["message"]) == ("Xid79", "Xid 79: reset it")
        assert "b (Xid79)" in condition(shown, "Healthy")[2]

    def test_a_disconnected_plugin_is_reported_once_and_not_by_each_device(self) -> None:
        scenario = Scenario.with_plugin([WELL, BROKEN]).run(pod("p", gpu=1))
        scenario.disconnect()
        shown = status(scenario)
        assert (shown["endpoint"]["state"], shown["healthy"]) == ("Stopped", 0)
        (held,) = shown["devices"]
        assert (held["id"], held["health"], held.keys() & {"reason", "message"}) == ("a", "Unhealthy", set())
        assert held["attributes"] == {"model": "H100", "pciBusID": "0000:1b:00.0"}
        assert condition(shown, "Healthy")[1:] == (
            "NoHealthyDevices",
            "no device plugin is connected: none of 2 devices counts as healthy",
        )

    def test_the_plugins_message_is_in_the_condition(self) -> None:
        scenario = Scenario()
        scenario.connect()
        scenario.happens("listed", GPU, 1, accept([], "the driver does not fit: reboot"))
        _, reason, message = condition(status(scenario), "Healthy")
        assert reason == "NoDevices"
        assert message.endswith("lists no devices; the driver does not fit: reboot")
        scenario.happens("listed", GPU, 1, accept([Device("a")], "a GPU cannot be named"))
        assert condition(status(scenario), "Healthy")[2] == "all 1 devices are healthy; a GPU cannot be named"
        scenario.lists([Device("a")])
        assert condition(status(scenario), "Healthy")[2] == "all 1 devices are healthy"

    def test_a_message_that_changes_is_published(self) -> None:
        scenario = Scenario.with_plugin([BROKEN])
        assert scenario.lists([BROKEN]) == []
        assert scenario.lists([Device("b", False, (), "Xid48", "another")])


def test_a_message_is_no_longer_than_the_crd_allows() -> None:
    scenario = Scenario.with_plugin(1)
    shown = status(scenario, notes="x" * 5000)
    _, _, message = condition(shown, "Registered")
    assert (len(message), message[-1]) == (MAX_MESSAGE, "…")
    # cut, it is as before
    assert status(scenario, shown, TUESDAY, notes="x" * 5000) == shown


NUMBERS = {"allocated": 2, "reserved": 1, "available": 5}
NOT_INJECTABLE = {"conditions": [{"type": "Injectable", "status": "False"}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({}, NUMBERS, True, id="the first"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Running"}}, False, id="of a plugin that serves"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Stopped"}}, True, id="of one that has stopped"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Gone"}}, True, id="of one that is gone"),
    ],
)
def test_writes_that_hundreds_of_plugins_may_need_at_once(before: Json, after: Json, expected: bool) -> None:
    assert is_bulk(before, after) is expected


@pytest.mark.parametrize(
    ("before", "after", "is_fewer"),
    [
        pytest.param({}, NUMBERS, False, id="new"),
        pytest.param(NUMBERS, {**NUMBERS, "available": 4}, True, id="one is broken"),
        pytest.param(NUMBERS, {**NUMBERS, "available": 6}, False, id="one is well again"),
        pytest.param(NUMBERS, {**NUMBERS, "allocated": 4, "available": 3}, False, id="allocated"),
        pytest.param(NUMBERS, NUMBERS | NOT_INJECTABLE, True, id="not injectable any more"),
        pytest.param(NUMBERS | NOT_INJECTABLE, NUMBERS, False, id="injectable again"),
        pytest.param({**NUMBERS, "available": "five"}, NUMBERS, False, id="malformed before"),
    ],
)
def test_a_write_is_a_loss_when_pods_could_use_fewer_devices(before: Json, after: Json, is_fewer: bool) -> None:
    assert is_loss(before, after) is is_fewer
