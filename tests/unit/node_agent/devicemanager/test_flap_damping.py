"""When a device is damped because its health changed too often, and when damping ends."""

import pytest
from nodedevice_agent.devicemanager.devices import NO_DEVICES, Device, accept
from nodedevice_agent.devicemanager.flap_damping import FlapDamping, FlapDampingLimits

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, pod, published

SICK, WELL = False, True
DEFAULT = FlapDampingLimits()


def change(flapping: FlapDamping, health: bool, at: float, device_id: str = "d0") -> None:
    """The device's health changes to `health`."""
    flapping.record(accept([Device(device_id, not health)]), accept([Device(device_id, health)]), at)


def after(*times: float, limits: FlapDampingLimits = DEFAULT) -> FlapDamping:
    """One device, whose health has changed at these times."""
    flapping = FlapDamping(limits)
    for index, time in enumerate(times):
        change(flapping, SICK if index % 2 == 0 else WELL, time)
    return flapping


class TestCounting:
    @pytest.mark.parametrize(
        ("times", "is_damped"),
        [
            pytest.param([0], False, id="failed"),
            pytest.param([0, 1], False, id="failed and recovered"),
            pytest.param([0, 1, 2], True, id="the third change"),
            pytest.param([0, 5, 10], True, id="within the window to the second"),
            pytest.param([0, 5, 10.1], False, id="the first was too long ago"),
            pytest.param([0, 9, 18, 27], False, id="never three within the window"),
            pytest.param([0, 9, 11, 12], True, id="the last three"),
        ],
    )
    def test_three_changes_within_ten_seconds(self, times: list[float], is_damped: bool) -> None:
        assert ("d0" in after(*times).damped) is is_damped

    def test_both_directions_count(self) -> None:
        flapping = FlapDamping(DEFAULT)
        for at, health in enumerate([WELL, SICK, WELL]):
            change(flapping, health, at)
        assert set(flapping.damped) == {"d0"}

    def test_devices_are_counted_separately(self) -> None:
        flapping = after(0, 1)
        change(flapping, SICK, 2, "d1")
        assert set(flapping.damped) == set()

    def test_added_removed_and_unchanged_devices_are_no_changes(self) -> None:
        flapping = FlapDamping(DEFAULT)
        well, sick = accept([Device("d0")]), accept([Device("d0", SICK)])
        for at, (before, now) in enumerate(
            [(NO_DEVICES, well), (well, well), (well, NO_DEVICES), (NO_DEVICES, sick), (sick, NO_DEVICES)]
        ):
            flapping.record(before, now, at)
        change(flapping, SICK, 5)
        change(flapping, WELL, 6)
        assert set(flapping.damped) == set()

    def test_can_be_turned_off(self) -> None:
        assert set(after(*range(50), limits=FlapDampingLimits(changes=0)).damped) == set()

    def test_limits_are_settings(self) -> None:
        limits = FlapDampingLimits(changes=2, window_seconds=1.0, quiet_seconds=60.0)
        assert set(after(0, 2, limits=limits).damped) == set()
        flapping = after(0, 1, limits=limits)
        assert (set(flapping.damped), flapping.next_deadline()) == ({"d0"}, 61)

    def test_old_changes_are_forgotten(self) -> None:
        flapping = FlapDamping(DEFAULT)
        for index in range(1000):
            change(flapping, SICK, index, f"d{index}")
        assert len(flapping._recent) <= 11


class TestEndOfDamping:
    def test_takes_ten_seconds_without_a_change(self) -> None:
        flapping = after(0, 1, 2, 8)
        assert flapping.next_deadline() == 18
        assert (flapping.expire(17.9), set(flapping.damped)) == (False, {"d0"})
        assert (flapping.expire(18), set(flapping.damped)) == (True, set())
        assert flapping.next_deadline() is None

    def test_then_counting_starts_again(self) -> None:
        flapping = after(0, 1, 2)
        flapping.expire(12)
        for at in (12, 13):
            change(flapping, SICK, at)
        assert set(flapping.damped) == set()

    def test_also_where_a_change_comes_before_the_tick(self) -> None:
        flapping = after(0, 1, 2)
        change(flapping, SICK, 50)
        assert set(flapping.damped) == set()


def test_the_message_changes_rarely() -> None:
    flapping = after(*(at / 10 for at in range(3)))
    messages = [flapping.message("d0")]
    for at in range(3, 250):
        change(flapping, SICK, at / 10)
        messages.append(flapping.message("d0"))
    assert messages[0].startswith("its health changed 3 times or more within a short time; ")
    assert len(set(messages)) == 3
    assert "100 times or more" in messages[-1]


class TestInTheManager:
    def flap(self, scenario: Scenario, *healths: bool) -> None:
        for health in healths:
            scenario.passes(1)
            scenario.lists([Device("d0", health), "d1"])

    def test_the_first_failure_and_recovery_take_effect_at_once(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK)
        assert scenario.snapshot().available == 1
        self.flap(scenario, WELL)
        assert scenario.snapshot().available == 2

    def test_a_flapping_device_counts_as_unhealthy_whatever_is_reported(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        for healths in ((SICK, WELL, SICK), (WELL,)):
            self.flap(scenario, *healths)
            seen = scenario.snapshot()
            assert (seen.total, seen.healthy, seen.available) == (2, 1, 1)
            (view, _) = seen.devices
            assert (view.healthy, view.reason, view.present) == (False, "Flapping", True)
            assert "changed 3 times" in view.message
        assert calls(scenario.see(pod("p", gpu=1)))[0].device_ids == ("d1",)

    def test_it_is_allocated_again_after_damping(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL, SICK, WELL)
        scenario.run(pod("p", gpu=2))
        assert scenario.reasons() == {"p": "NotEnoughDevices"}
        assert scenario.passes(9.9) == []
        effects = scenario.passes(0.1)
        assert GPU in published(effects)
        assert calls(effects)[0].device_ids == ("d0", "d1")
        assert scenario.snapshot().healthy == 2

    def test_an_unhealthy_device_is_just_unhealthy_after_damping(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL, SICK)
        scenario.passes(10)
        assert scenario.snapshot().devices[0].reason == "ReportedUnhealthy"

    def test_reconnects_of_a_plugin_damp_nothing(self) -> None:
        scenario = Scenario()
        for endpoint in range(1, 9):
            scenario.plugin(["d0", "d1"], endpoint=endpoint)
            scenario.disconnect(endpoint=endpoint)
            scenario.passes(0.1)
        assert {view.reason for view in scenario.snapshot().devices} == {"EndpointStopped"}
        scenario.plugin(["d0", "d1"], endpoint=9)
        assert scenario.snapshot().available == 2

    def test_a_disconnected_plugin_is_reported_before_flapping(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL, SICK)
        scenario.disconnect()
        assert {view.reason for view in scenario.snapshot().devices} == {"EndpointStopped"}
        assert scenario.snapshot().healthy == 0

    def test_a_held_device_stays_with_its_pod(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"]).run(pod("p", gpu=1))
        self.flap(scenario, SICK, WELL, SICK, WELL)
        seen = scenario.snapshot()
        assert (scenario.held(), seen.allocated, seen.available, seen.healthy) == ({"p/main": ("d0",)}, 1, 1, 1)

    def test_a_device_that_starts_flapping_during_its_allocation_is_not_used(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL)
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        self.flap(scenario, SICK, WELL)
        scenario.answer_all(scenario.answer(call))
        assert scenario.held() == {"p/main": ("d1",)}
