"""The earliest of many times that move, without looking at all of them."""

from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.deadlines import Deadlines

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
    deadlines.set("grace", "first", 0.0)
    for number in range(10_000):
        # the earliest stays, and each other one moves
        deadlines.set("grace", f"d{number % 8}", 1.0 + number)
    assert deadlines.next() == 0.0
    assert len(deadlines._heap) < 100
