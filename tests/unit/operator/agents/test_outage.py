"""How many silent agents are many, in clusters of every size."""

import pytest
from nodedevice_operator.agents.liveness import silent_together


@pytest.mark.parametrize(
    ("agents", "silent", "is_outage"),
    [
        (1, 1, False),
        (2, 1, False),
        (2, 2, True),
        (4, 1, False),
        (5, 1, False),
        (5, 2, True),
        (9, 2, True),
        (10, 2, False),
        (10, 3, True),
        (100, 20, False),
        (100, 21, True),
        (5000, 1000, False),
        (5000, 1001, True),
    ],
)
def test_more_than_a_fifth_and_more_than_one(agents: int, silent: int, is_outage: bool) -> None:
    names = {f"node-{number}": 0.0 for number in range(silent)}
    assert silent_together(names, agents) == (names.keys() if is_outage else set())


def test_only_those_within_a_minute_of_each_other() -> None:
    one_by_one = {f"node-{number}": number * 61.0 for number in range(10)}
    assert silent_together(one_by_one, 10) == set()
    crowd = {"a": 1000.0, "b": 1030.0, "c": 1060.0}
    assert silent_together({**one_by_one, **crowd}, 13) >= crowd.keys()
    assert "node-0" not in silent_together({**one_by_one, **crowd}, 13)


def test_none_is_none() -> None:
    assert silent_together({}, 0) == set()
