"""When a device is damped because it changed too often, and when damping ends."""

import itertools

import pytest
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDamping, FlapDampingLimits

from tests.unit.node_agent.devicemanager.scenario import SICK, WELL

DEFAULT = FlapDampingLimits()


def change(flapping: FlapDamping, health: bool, at: float, device_id: str = "d0") -> None:
    flapping.record(accept([Device(device_id, not health)]), accept([Device(device_id, health)]), at)


def after(*times: float, limits: FlapDampingLimits = DEFAULT) -> FlapDamping:
    """One device, whose health has changed at these times."""
    flapping = FlapDamping(limits, "r", Deadlines())
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

    def test_a_change_at_the_edge_of_the_window_counts_whatever_other_devices_do(self) -> None:
        flapping = after(0)
        change(flapping, SICK, 10, "d1")
        for health in (WELL, SICK):
            change(flapping, health, 10)
        assert "d0" in flapping.damped

    def test_a_device_that_stays_as_it_is_has_no_change_whatever_others_do(self) -> None:
        flapping = after()
        for at, health in enumerate([SICK, WELL, SICK, WELL]):
            before, now = (accept([Device("d0", each), Device("d1", SICK)]) for each in (not health, health))
            flapping.record(before, now, at)
        assert set(flapping.damped) == {"d0"}

    @pytest.mark.parametrize(
        ("lists", "is_damped"),
        [
            pytest.param([1, 0, 1], False, id="left and came back"),
            pytest.param([1, 0, 1, 0], True, id="left again"),
            pytest.param([1, 0, 0, 0, 1, 1], False, id="the same list again"),
            pytest.param([0, 1, 1], False, id="new"),
        ],
    )
    def test_a_device_that_leaves_the_list_or_comes_back_changes(self, lists: list[int], is_damped: bool) -> None:
        flapping, steps = after(), [NO_DEVICES, *(accept([Device("d0")] * count) for count in lists)]
        for at, (before, now) in enumerate(itertools.pairwise(steps)):
            flapping.record(before, now, at)
        assert ("d0" in flapping.damped) is is_damped

    def test_health_and_presence_count_together(self) -> None:
        flapping = after(0, 1)
        flapping.record(accept([Device("d0")]), NO_DEVICES, 2)
        assert set(flapping.damped) == {"d0"}

    def test_ever_new_devices_are_forgotten(self) -> None:
        flapping = after()
        lists = [accept(Device(f"{at}-{index}") for index in range(4)) for at in range(500)]
        for at, (this, that) in enumerate(itertools.pairwise(lists)):
            # back and forth, within the window
            for before, now in ((this, that), (that, this), (this, that)):
                flapping.record(before, now, at / 1000)
        assert len(flapping.damped) <= 8
        assert len(flapping._recent) <= 8

    def test_limits_are_settings(self) -> None:
        assert set(after(*range(50), limits=FlapDampingLimits(changes=0)).damped) == set(), "it is turned off"
        limits = FlapDampingLimits(changes=2, window_seconds=1.0, quiet_seconds=60.0)
        assert set(after(0, 2, limits=limits).damped) == set()
        flapping = after(0, 1, limits=limits)
        assert (set(flapping.damped), flapping.next_deadline()) == ({"d0"}, 61)


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
    assert messages[0].startswith("its health changed, or it left the list or came back, 3 times or more within a")
    assert len(set(messages)) == 3
    assert "100 times or more" in messages[-1]


def test_with_damped_devices_that_are_absent_a_list_keeps_its_errors() -> None:
    flapping, here = after(), accept([Device("d0")])
    for at in range(5):
        flapping.record(*((here, NO_DEVICES) if at % 2 == 0 else (NO_DEVICES, here)), at)
    left = ListedDevices({"d1": Device("d1")}, "an ID is empty", "the driver is old")
    found = flapping.with_absent(left)
    assert sorted(found.devices) == ["d0", "d1"]
    assert (found.id_error, found.plugin_message) == (left.id_error, left.plugin_message)
    assert derived(found) == derived(ListedDevices(found.devices))


def derived(listed: ListedDevices) -> tuple[object, ...]:
    return listed.ids, listed.healthy_ids, listed.unhealthy_ids, listed.by_parent, listed.has_identities
