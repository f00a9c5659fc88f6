"""What another program can cause any number of times: a bounded number of lines, and sums that have the rest."""

import asyncio
import logging

import pytest
from nodedevice_common.paced_log import EVENT_AT_ONCE, SUBJECT_AT_ONCE, PacedLog

from tests.fakes.virtual_time import later, virtual_time

log = logging.getLogger(__name__)
SUM = "lines left out of the log: there were too many of one event"


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if record.getMessage() == event]


@pytest.mark.parametrize("subjects", [1, 3, 20, 1000])
def test_any_number_is_a_bounded_number_of_lines_which_account_for_all(
    subjects: int, caplog: pytest.LogCaptureFixture
) -> None:
    paced = PacedLog(log, lambda: 0.0)
    for number in range(5000):
        paced.log(logging.WARNING, "it comes", f"subject {number % subjects}")
    paced.flush()
    logged = lines(caplog, "it comes")
    assert len(logged) == min(subjects * SUBJECT_AT_ONCE, EVENT_AT_ONCE)
    (total,) = lines(caplog, SUM)
    assert total["line"] == "it comes"
    counts = total["subjects"]
    assert isinstance(counts, dict)
    assert total["count"] == sum(counts.values()) == 5000 - len(logged)
    assert len(counts) <= 9
    paced.flush()
    assert len(lines(caplog, SUM)) == 1


def test_one_event_or_subject_takes_no_lines_of_others(caplog: pytest.LogCaptureFixture) -> None:
    paced = PacedLog(log, lambda: 0.0)
    for _ in range(1000):
        paced.log(logging.WARNING, "it comes", "noisy")
    paced.log(logging.WARNING, "it goes", "noisy")
    paced.log(logging.WARNING, "it comes", "quiet", resource_name="quiet")
    assert len(lines(caplog, "it goes")) == 1
    assert lines(caplog, "it comes")[-1]["resource_name"] == "quiet"


def test_lines_come_back_with_time(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    paced = PacedLog(log, lambda: now[0])
    for _ in range(SUBJECT_AT_ONCE + 1):
        paced.log(logging.WARNING, "it comes", "a")
    now[0] = 10.0
    paced.log(logging.WARNING, "it comes", "a")
    assert len(lines(caplog, "it comes")) == SUBJECT_AT_ONCE + 1


@virtual_time
async def test_the_sum_comes_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    paced = PacedLog(log, asyncio.get_running_loop().time)
    for _ in range(100):
        paced.log(logging.WARNING, "it comes", "a")
    await later(9)
    assert lines(caplog, SUM) == []
    await later(2)
    assert [each["count"] for each in lines(caplog, SUM)] == [100 - SUBJECT_AT_ONCE]
    await later(60)
    assert len(lines(caplog, SUM)) == 1
