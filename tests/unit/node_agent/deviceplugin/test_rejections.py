"""The report of rejected registrations: the last few, each once, until they expire."""

import pytest
from nodedevice_agent.deviceplugin import rejections
from nodedevice_agent.deviceplugin.rejections import Rejections


@pytest.fixture
def time() -> list[float]:
    return [0.0]


@pytest.fixture
def rejected(time: list[float]) -> Rejections:
    return Rejections(lambda: time[0])


def test_a_repeated_rejection_is_one_change(rejected: Rejections) -> None:
    assert rejected.report() == ""
    for _ in range(3):
        rejected.add("Version", ValueError("too old"))
    assert rejected.changed.is_set()
    assert rejected.report() == "too old"
    rejected.add("Version", ValueError("too old"))
    assert not rejected.changed.is_set()


def test_a_rejection_that_does_not_recur_expires(rejected: Rejections, time: list[float]) -> None:
    for text in ("once", "again and again"):
        rejected.add("Version", ValueError(text))
    time[0] = rejections._EXPIRY_SECONDS / 2
    rejected.add("Version", ValueError("again and again"))
    time[0] = rejections._EXPIRY_SECONDS
    assert rejected.report() == "again and again"
    rejected.add("Version", ValueError("once"))
    assert rejected.changed.is_set()


def test_changing_errors_do_not_fill_the_lease(rejected: Rejections) -> None:
    for number in range(1000):
        rejected.add("Version", ValueError(f"{number} {'x' * 10_000}"))
    lines = rejected.report().splitlines()
    assert [line.split()[0] for line in lines] == ["995", "996", "997", "998", "999"]
    assert max(map(len, lines)) == rejections._MAX_CHARACTERS


def test_a_rejection_is_one_line(rejected: Rejections) -> None:
    rejected.add("Version", ValueError("a\nb\r\n\tc  d"))
    assert rejected.report() == "a b c d"
