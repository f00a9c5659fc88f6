"""A device manager whose devices flap: what is offered, held and shown, until their damping ends."""

from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.flap_damping import MOST_AT_ONCE, FlapDampingLimits
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.podresources.view import allocatable, seen_resources

from tests.unit.node_agent.devicemanager.scenario import GPU, SICK, WELL, Scenario, calls, device_ids, pod, published


def test_the_damping_of_each_device_ends_in_its_time() -> None:
    scenario = Scenario.with_plugin(2, flapping=FlapDampingLimits(changes=1))
    for name in ("d0", "d1"):
        scenario.lists(Device(other, other != name) for other in ("d0", "d1"))
        scenario.lists(2)
        scenario.passes(5)
    for healthy in (1, 2, 2):
        assert scenario.snapshot().healthy == healthy
        scenario.passes(5)


class TestInTheManager:
    def flap(self, scenario: Scenario, *healths: bool) -> None:
        for health in healths:
            scenario.passes(1)
            scenario.lists([Device("d0", health), "d1"])

    def test_a_flapping_device_counts_as_unhealthy_whatever_is_reported(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        for healths in ((SICK, WELL, SICK), (WELL,)):
            self.flap(scenario, *healths)
            seen = scenario.snapshot()
            assert (seen.total, seen.healthy, seen.available) == (2, 1, 1)
            (view, _) = seen.devices
            assert (view.healthy, view.reason, view.present) == (False, "Flapping", True)
            assert "3 times or more" in view.message
        assert calls(scenario.see(pod("p", gpu=1)))[0].device_ids == ("d1",)

    def test_it_is_allocated_again_after_damping(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL, SICK, WELL)
        assert scenario.run(pod("p", gpu=2)).reasons() == {"p": "NotEnoughDevices"}
        assert scenario.passes(9.9) == []
        effects = scenario.passes(0.1)
        assert GPU in published(effects)
        assert calls(effects)[0].device_ids == ("d0", "d1")
        assert scenario.snapshot().healthy == 2

    def test_reconnects_of_a_plugin_damp_nothing(self) -> None:
        scenario = Scenario()
        for endpoint in range(1, 9):
            scenario.plugin(["d0", "d1"], endpoint=endpoint)
            scenario.disconnect(endpoint=endpoint)
            scenario.passes(0.1)
        assert (scenario.snapshot().healthy, scenario.snapshot().unhealthy) == (0, ())
        scenario.plugin(["d0", "d1"], endpoint=9)
        assert scenario.snapshot().available == 2

    def test_a_disconnected_plugin_is_reported_before_flapping(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"]).run(pod("p", gpu=2))
        self.flap(scenario, SICK, WELL, SICK)
        assert "Flapping" in {view.reason for view in scenario.snapshot().devices}
        scenario.disconnect()
        assert [(view.id, view.reason) for view in scenario.snapshot().devices] == [("d0", ""), ("d1", "")]
        assert scenario.snapshot().healthy == 0

    def test_a_device_that_starts_flapping_during_its_allocation_is_not_used(self) -> None:
        scenario = Scenario.with_plugin(["d0", "d1"])
        self.flap(scenario, SICK, WELL)
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        self.flap(scenario, SICK, WELL)
        scenario.answer_all(scenario.answer(call))
        assert scenario.held() == {"p/main": ("d1",)}

    def list_in_turn(self, scenario: Scenario, *counts: int) -> None:
        for count in counts:
            scenario.passes(0.1)
            scenario.lists(count)

    def test_capacity_does_not_jump_with_the_list(self) -> None:
        scenario = Scenario.with_plugin(8)
        seen = []
        for count in [1, 8] * 30:
            self.list_in_turn(scenario, count)
            now = scenario.snapshot()
            seen.append((now.total, now.healthy, now.available))
        assert seen[:2] == [(1, 1, 1), (8, 8, 8)]
        assert set(seen[2:]) == {(8, 1, 1)}
        assert {(view.reason, view.present) for view in scenario.snapshot().unhealthy} == {("Flapping", True)}

    def test_a_pod_gets_no_device_that_is_not_listed_at_the_moment(self) -> None:
        scenario = Scenario.with_plugin(2)
        self.list_in_turn(scenario, 1, 2, 1)
        scenario.run(pod("p", gpu=1), pod("q", gpu=1))
        assert (scenario.held(), scenario.reasons()) == ({"p/main": ("d0",)}, {"q": "NotEnoughDevices"})

    def test_monitors_and_the_checkpoint_do_not_have_it_meanwhile(self) -> None:
        scenario = Scenario.with_plugin(2).run(pod("p", gpu=2))
        self.list_in_turn(scenario, 1, 2, 1)
        assert [device.device_id for device in allocatable(seen_resources(scenario.manager))] == ["d0"]
        assert scenario.manager.checkpoint().registered == {GPU: ("d0",)}
        assert scenario.held() == {"p/main": ("d0", "d1")}

    def test_a_plugin_that_is_gone_leaves_no_device(self) -> None:
        scenario = Scenario.with_plugin(8, flapping=FlapDampingLimits(quiet_seconds=3600.0))
        self.list_in_turn(scenario, 1, 8, 1)
        scenario.disconnect()
        scenario.passes(STOP_GRACE_PERIOD_SECONDS)
        assert scenario.snapshot().total == 0


class TestVeryManyAtOnce:
    """Counted one by one, a hundred thousand would stop the agent for a second and a half."""

    MANY = MOST_AT_ONCE + 1

    def change(self, scenario: Scenario, *healths: bool, of: int = MANY, total: int = MANY) -> None:
        """So many change together, of so many."""
        for health in healths:
            scenario.passes(1)
            scenario.lists(Device(f"d{index}", health or index >= of) for index in range(total))

    def test_is_a_change_of_all(self) -> None:
        scenario = Scenario.with_plugin(self.MANY)
        self.change(scenario, SICK, WELL)
        assert scenario.snapshot().available == self.MANY, "the first recovery takes effect at once"
        self.change(scenario, SICK, WELL)
        now = scenario.snapshot()
        assert (now.total, now.healthy, now.available) == (self.MANY, 0, 0)
        assert availability.free(scenario.manager.resources[GPU]) == ()
        assert len(now.devices) == self.MANY
        assert {(view.healthy, view.reason) for view in now.devices} == {(False, "Flapping")}
        assert "3 times or more" in now.unhealthy[0].message
        assert scenario.run(pod("p", gpu=1)).reasons() == {"p": "NotEnoughDevices"}
        assert GPU in published(scenario.passes(10))
        assert scenario.snapshot().available == self.MANY

    def test_a_few_less_are_counted_one_by_one(self) -> None:
        scenario = Scenario.with_plugin(self.MANY)
        self.change(scenario, SICK, WELL, SICK, of=self.MANY - 1)
        assert scenario.snapshot().healthy == 1

    def test_a_damped_one_that_leaves_with_many_stays_listed(self) -> None:
        scenario = Scenario.with_plugin(self.MANY + 1)
        self.change(scenario, SICK, WELL, SICK, WELL, SICK, of=1, total=self.MANY + 1)
        scenario.lists([f"d{self.MANY}"])
        assert "d0" in scenario.manager.resources[GPU].devices


# of four devices: not listed, unhealthy, healthy
LISTS = st.lists(st.sampled_from([None, SICK, WELL]), min_size=4, max_size=4)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.02, 1.0, 4.0, 11.0]), LISTS), max_size=40))
def test_no_device_comes_back_again_and_again(lists: list[tuple[float, list[bool | None]]]) -> None:
    scenario = Scenario.with_plugin(4)
    back: dict[str, list[float]] = {}
    free = set(device_ids(4))
    for pause, healths in lists:
        scenario.passes(pause)
        free = noted(scenario, free, back)
        scenario.lists(Device(f"d{index}", health) for index, health in enumerate(healths) if health is not None)
        free = noted(scenario, free, back)
    # one damping that ends, and the first return after it
    assert all(
        later - earlier > 10 for times in back.values() for earlier, later in zip(times, times[2:], strict=False)
    )
    # what the plugin lists last arrives
    scenario.passes(10)
    resource = scenario.manager.resources[GPU]
    last = lists[-1][1] if lists else [WELL] * 4
    assert {i: device.healthy for i, device in resource.devices.items()} == {
        f"d{index}": health for index, health in enumerate(last) if health is not None
    }
    assert set(availability.free(resource)) == {f"d{index}" for index, health in enumerate(last) if health}


def noted(scenario: Scenario, before: set[str], back: dict[str, list[float]]) -> set[str]:
    """The devices that are free now; notes when each came back."""
    now = set(availability.free(scenario.manager.resources[GPU]))
    for device_id in now - before:
        back.setdefault(device_id, []).append(scenario.now)
    return now
