"""The report of rejected registrations: the last few, each once, until they expire."""

import pytest
from nodedevice_agent.devicemanager.registration import RegistrationRejected
from nodedevice_agent.deviceplugin.registration_server import Rejections


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
    time[0] = 300.0
    rejected.add("Version", ValueError("again and again"))
    time[0] = 600.0
    assert rejected.report() == "again and again"
    rejected.add("Version", ValueError("once"))
    assert rejected.changed.is_set()


def test_changing_errors_do_not_fill_the_lease(rejected: Rejections) -> None:
    for number in range(1000):
        rejected.add("Version", ValueError(f"{number} {'x' * 10_000}"))
    lines = rejected.report().splitlines()
    assert [line.split()[0] for line in lines] == ["995", "996", "997", "998", "999"]
    assert max(map(len, lines)) == 400


def test_many_are_logged_in_sums(rejected: Rejections, time: list[float], caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100_000):
        rejected.add("Names" if number % 10 else "Version", ValueError(f"{number}"))
        time[0] += 0.001
    lines = [record.getMessage() for record in caplog.records]
    assert {*lines} == {"registration rejected"}
    assert len(lines) <= 40
    rejected.report()
    rejected.report()
    (summed,) = (vars(record) for record in caplog.records if "left out" in record.getMessage())
    assert summed["count"] == sum(summed["subjects"].values()) == 100_000 - len(lines)
    assert summed["subjects"].keys() == {"Names", "Version"}


def test_what_is_the_same_for_all_names_is_one_line_of_the_lease(rejected: Rejections) -> None:
    for number in range(100):
        rejected.add("Names", RegistrationRejected("Names", f"a.b/{number}: no room", f"no room: {number} names"))
        assert rejected.changed.is_set() == (number == 0)
        assert rejected.report() == f"no room: {number} names"
