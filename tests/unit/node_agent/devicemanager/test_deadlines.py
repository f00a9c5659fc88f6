"""The earliest of many times that move, without looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.resource import STOP_GRACE_PERIOD_SECONDS

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod

TIMES = st.one_of(st.none(), st.integers(0, 20).map(float))


@given(st.lists(st.tuples(st.sampled_from("abcd"), TIMES), max_size=200))
def test_the_earliest_is_that_of_all(changes: list[tuple[str, float | None]]) -> None:
    times: dict[str, float] = {}
    deadlines: Deadlines[str] = Deadlines(lambda key: (times[key],) if key in times else ())
    for key, at in changes:
        times.pop(key, None)
        if at is not None:
            times[key] = at
        deadlines.set(key, at)
        assert deadlines.next() == min(times.values(), default=None)


def test_what_does_not_count_any_more_is_not_kept() -> None:
    times: dict[str, float] = {}
    looked: list[str] = []

    def current(key: str) -> tuple[float]:
        looked.append(key)
        return (times[key],)

    deadlines: Deadlines[str] = Deadlines(current)
    for number in range(10_000):
        # the earliest stays, and each other one moves
        for key, at in (("first", 0.0), (f"d{number % 8}", 1.0 + number)):
            times[key] = at
            deadlines.set(key, at)
            # twice as many as there are keys, and some
            assert len(deadlines._heap) <= 2 * 9 + 64
    assert deadlines.next() == 0.0
    # not all of them each time
    assert len(looked) < 2 * 20_000


def test_the_earliest_is_that_of_all_when_what_does_not_count_has_left() -> None:
    times: dict[int, float] = {}
    looked: list[int] = []

    def current(key: int) -> tuple[float]:
        looked.append(key)
        return (times[key],)

    deadlines: Deadlines[int] = Deadlines(current)
    for number in range(2000):
        key = number % 200
        # in no order, and the earlier ones pass
        times[key] = number + float(number * 37 % 211)
        deadlines.set(key, times[key])
        assert deadlines.next() == min(times.values())
    assert len(looked) < 10 * 2000


def test_of_many_names_none_is_looked_at_that_has_not_changed() -> None:
    """After each effect the time of the next tick is asked for."""
    scenario = Scenario(flapping=FlapDampingLimits())
    for number in range(200):
        scenario.plugin(["d"], name=f"example.com/r{number}", endpoint=number)
        scenario.passes(0.01)
        scenario.disconnect(f"example.com/r{number}", number)
    asked: list[str] = []
    table = scenario.manager._table
    times_of = table._deadlines._current

    def counted(name: str) -> object:
        asked.append(name)
        return times_of(name)

    table._deadlines._current = counted  # type: ignore[assignment]
    scenario.see(pod("p"))
    first = scenario.manager.resources["example.com/r0"].grace_ends_at
    assert scenario.manager.next_deadline() == first
    assert asked == ["example.com/r0"]
    scenario.plugin(["d"], name="example.com/r0", endpoint=1000)
    assert scenario.manager.next_deadline() == scenario.manager.resources["example.com/r1"].grace_ends_at
    scenario.passes(STOP_GRACE_PERIOD_SECONDS + 10)
    assert scenario.manager.next_deadline() is None


def test_a_resource_that_is_forgotten_has_no_deadline() -> None:
    scenario = Scenario.with_plugin(1)
    scenario.disconnect()
    scenario.now += STOP_GRACE_PERIOD_SECONDS
    scenario.happens("tick")
    assert scenario.manager.forget(GPU)
    assert scenario.manager.next_deadline() is None
