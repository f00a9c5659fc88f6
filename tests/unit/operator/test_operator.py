"""What ends the operator: a task that has to go on for ever, and did not."""

import asyncio
import itertools
from typing import Any

import pytest
from nodedevice_operator.errors import StaleWatch, TaskEnded
from nodedevice_operator.operator import _raise_failure, kopf_settings


async def _ended(failure: Exception | None) -> asyncio.Task[None]:
    async def work() -> None:
        if failure is not None:
            raise failure

    task = asyncio.create_task(work(), name="leases")
    await asyncio.wait([task])
    return task


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ValueError("two\nlines"), "the task leases has ended (ValueError: two lines), which is a bug"),
        (None, "the task leases has ended (it returned), which is a bug"),
    ],
)
async def test_a_bug_is_one_line(failure: Exception | None, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TaskEnded) as ended:
        _raise_failure(await _ended(failure))
    assert str(ended.value).startswith(expected)
    assert "\n" not in str(ended.value)
    assert [record.message for record in caplog.records] == ["background task ended unexpectedly"]


async def test_what_was_raised_on_purpose_is_passed_on() -> None:
    with pytest.raises(StaleWatch):
        _raise_failure(await _ended(StaleWatch("NodeDevice", "a", 7, 10.0)))


def test_kopf_is_set_to_write_nothing_and_to_retry_without_end() -> None:
    settings = kopf_settings()
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    backoffs: Any = settings.networking.error_backoffs
    delays = list(itertools.islice(backoffs, 1000))
    assert max(delays) <= 1.0
