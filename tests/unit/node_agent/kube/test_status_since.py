"""The times in a status, which change only with the entries that they are of."""

import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.records.allocations import MAX_SINCE
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, device_ids, pod
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY, status

SUNDAY_NOON = 1_767_528_000


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

    @pytest.mark.parametrize("is_lost", [False, True], ids=["with the object", "without the object"])
    def test_of_an_allocation_survives_a_restart(self, is_lost: bool) -> None:
        scenario = Scenario.with_plugin(1)
        scenario.wall_clock = SUNDAY_NOON
        scenario.run(pod("p", gpu=1))
        first = status(scenario)
        again = Scenario(decode(encode(scenario.manager.checkpoint())))
        again.plugin(1)
        again.happens("pod_events.synced", [pod("p", gpu=1)])
        shown = status(again, {} if is_lost else first, TUESDAY)
        assert shown["allocations"] == first["allocations"]

    def test_of_a_waiting_pod_moves_with_its_reason(self) -> None:
        scenario = Scenario.with_plugin(["d0"])
        scenario.see(pod("p", gpu=2))
        first = status(scenario)
        scenario.lists([])
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == MONDAY
        scenario.disconnect()
        assert status(scenario, first, TUESDAY)["waiting"][0]["since"] == TUESDAY
