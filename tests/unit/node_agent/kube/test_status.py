"""The encoded status: conditions, what a plugin reports beyond v1beta1, and times, which change only with what they are of."""

import pytest
from nodedevice_agent.devicemanager.records.allocations import MAX_SINCE
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.kube.observed import observed_status
from nodedevice_agent.kube.status import is_bulk, is_loss, owned
from nodedevice_api.names import Condition

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod, status_of
from tests.unit.node_agent.kube import crd_rules
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY, Json, status


def test_every_rule_of_the_crd_is_checked_here() -> None:
    assert crd_rules.rules_of_one_side() == set()


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
    shown = status_of(now, {}, MONDAY, delivery="nri")
    found = [entry["podUID"] for entry in shown["allocations"] + shown["waiting"] if entry.get("notInjected")]
    assert found == uids
    assert crd_rules.problems(shown) == []


NUMBERS = {"allocated": 2, "reserved": 1, "available": 5}
LARGEST = NUMBERS | {"parts": {"advertise": "Largest", "largestAvailable": 6}}
FEWER = NUMBERS | {"parts": {"advertise": "Largest", "largestAvailable": 5}}
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
    assert is_bulk(observed_status(before), observed_status(after)) is expected


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
        pytest.param(LARGEST, LARGEST | {"available": 4}, False, id="as many on the largest, which is advertised"),
        pytest.param(LARGEST, FEWER, True, id="fewer on the largest"),
        pytest.param({"reserved": 1}, {"reserved": 0}, True, id="a reserved one is gone"),
        pytest.param({"reserved": 1}, {"reserved": 0, "allocated": 1}, False, id="a reserved one is allocated"),
    ],
)
def test_a_write_is_a_loss_when_pods_could_use_fewer_devices(before: Json, after: Json, is_fewer: bool) -> None:
    assert is_loss(observed_status(before), observed_status(after)) is is_fewer


@pytest.mark.parametrize(
    ("before", "since"),
    [
        ({}, MONDAY),
        ({"health": "Unhealthy"}, TUESDAY),
        ({"presence": "Missing"}, TUESDAY),
        ({"reason": "Xid79"}, TUESDAY),
        # words about the same
        ({"message": "other words"}, MONDAY),
        ({"numaNodes": [1]}, MONDAY),
    ],
)
def test_a_device_has_a_time_for_what_it_is(before: Json, since: str) -> None:
    scenario = Scenario.with_plugin(1)
    shown = status(scenario)
    shown["devices"][0] |= before
    assert status(scenario, shown, TUESDAY)["devices"][0]["since"] == since


def test_a_condition_that_is_over_is_a_difference() -> None:
    """It is there only while it holds, and goes with a write that lacks it."""
    ours = status(Scenario.with_plugin(1))
    over = {"type": Condition.OFFERED_TWICE, "status": "True", "reason": "OfferedTwice"}
    assert owned({**ours, "conditions": [*ours["conditions"], over]}, ours) != ours
    theirs = {"type": Condition.READY, "status": "True"}
    assert owned({**ours, "conditions": [*ours["conditions"], theirs]}, ours) == ours


SUNDAY_NOON = 1_767_528_000


class TestSince:
    def test_a_restart_gives_an_equal_status(self) -> None:
        scenario = Scenario.with_plugin(4)
        pods = [pod("p", gpu=1), pod("q", gpu=9)]
        scenario.run(*pods)
        first = status(scenario)
        again = scenario.restarted()
        again.plugin(4)
        again.happens("pod_events.synced", pods)
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

    def test_of_a_waiting_pod_moves_with_its_reason(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.see(pod("p", gpu=2))
        first = status(scenario)
        scenario.lists([])
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == MONDAY
        scenario.disconnect()
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == TUESDAY
