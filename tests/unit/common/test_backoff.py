"""Delays before the next attempt."""

import pytest
from nodedevice_common.backoff import Backoff, exponential_seconds
from nodedevice_common.jitter import jittered


def test_delays_double_up_to_the_limit_and_start_again_after_a_reset() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


@pytest.mark.parametrize(("retries", "seconds"), [(0, 0.5), (1, 1.0), (5, 16.0), (6, 30.0), (10**6, 30.0)])
def test_any_number_of_retries_has_a_delay(retries: int, seconds: float) -> None:
    assert exponential_seconds(retries, 0.5, 30.0) == seconds


def test_jitter_stays_within_the_spread() -> None:
    delays = [jittered(10.0, 0.2) for _ in range(1000)]
    assert 8.0 <= min(delays) < 9.0 < 11.0 < max(delays) <= 12.0
