"""The earliest of many times that move, without looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario

TIMES = st.one_of(st.none(), st.integers(0, 20).map(float))


@given(st.lists(st.tuples(st.sampled_from(["grace", "retry"]), st.sampled_from("abcd"), TIMES), max_size=200))
def test_the_earliest_is_that_of_all(changes: list[tuple[str, str, float | None]]) -> None:
    times: dict[tuple[str, str], float] = {}
    deadlines = Deadlines()
    for what, key, at in changes:
        times.pop((what, key), None)
        if at is not None:
            times[what, key] = at
        deadlines.set(what, key, at)
        assert deadlines.next() == min(times.values(), default=None)


def test_what_does_not_count_any_more_is_not_kept() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        # the earliest stays, and each other one moves
        for key, at in (("first", 0.0), (f"d{number % 8}", 1.0 + number)):
            deadlines.set("grace", key, at)
            # twice as many as there are keys, and some
            assert len(deadlines._heap) <= 2 * 9 + 64
    assert deadlines.next() == 0.0


def test_a_resource_that_is_forgotten_has_no_deadline() -> None:
    scenario = Scenario.with_plugin(1)
    scenario.disconnect()
    scenario.now += STOP_GRACE_PERIOD_SECONDS
    scenario.happens("tick")
    assert scenario.manager.forget(GPU)
    assert scenario.manager.next_deadline() is None
