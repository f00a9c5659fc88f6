"""Cordoning a whole resource: `*` and `all` mean the same, beside IDs of single devices too."""

import pytest
from nodedevice_agent.devicemanager.devices import Device

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, pod


@pytest.mark.parametrize("cordons", [["*"], ["all"], ["*", "all"], ["all", "d0"]], ids=",".join)
def test_takes_every_device_out_and_gives_them_back(cordons: list[str]) -> None:
    scenario = Scenario()
    scenario.plugin(["d0", "d1"])
    scenario.happens("cordoned", GPU, cordons)
    seen = scenario.snapshot()
    assert (seen.total, seen.healthy, seen.cordoned, seen.available) == (2, 2, 2, 0)
    assert calls(scenario.see(pod("p", gpu=1))) == []
    scenario.answer_all(scenario.happens("cordoned", GPU, []))
    assert scenario.held() == {"p/main": ("d0",)}


def test_told_again_changes_nothing() -> None:
    scenario = Scenario()
    scenario.plugin(["d0"])
    assert scenario.happens("cordoned", GPU, ["all"]) != []
    assert scenario.happens("cordoned", GPU, ["all"]) == []


def test_a_device_of_that_name_is_cordoned_with_all_the_others() -> None:
    scenario = Scenario()
    scenario.plugin([Device("all"), Device("d0")])
    scenario.happens("cordoned", GPU, ["d0"])
    assert scenario.snapshot().available == 1
    scenario.happens("cordoned", GPU, ["all"])
    assert scenario.snapshot().available == 0
