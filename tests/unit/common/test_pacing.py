"""Delays before the next attempt, and the token bucket, with a clock that only the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_common.pacing import Backoff, TokenBucket, exponential_seconds, jittered


def test_delays_double_up_to_the_limit_and_start_again_after_a_reset() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


@pytest.mark.parametrize(("retries", "seconds"), [(0, 0.5), (1, 1.0), (5, 16.0), (6, 30.0), (10**6, 30.0)])
def test_any_number_of_retries_has_a_delay(retries: int, seconds: float) -> None:
    assert exponential_seconds(retries, 0.5, 30.0) == seconds


@pytest.mark.parametrize(("random_number", "seconds"), [(0.0, 8.0), (0.5, 10.0), (1.0, 12.0)])
def test_jitter_stays_within_the_spread(random_number: float, seconds: float) -> None:
    assert jittered(10.0, 0.2, random_number) == pytest.approx(seconds)


def test_a_burst_passes_and_then_as_many_as_time_brings() -> None:
    bucket = TokenBucket(per_second=100, burst=10, now=0.0)
    assert [bucket.take(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [bucket.take(0.02) for _ in range(3)] == [True, True, False]


def test_idle_time_saves_up_no_more_than_a_burst() -> None:
    bucket = TokenBucket(per_second=100, burst=10, now=0.0)
    assert sum(bucket.take(3600.0) for _ in range(50)) == 10


@pytest.mark.kubelet("scenario 105")
@given(st.lists(st.floats(0, 1), max_size=200))
def test_never_more_than_the_burst_and_the_rate_allow(pauses: list[float]) -> None:
    bucket, now, passed = TokenBucket(per_second=100, burst=10, now=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
        # a hair for rounding: tokens are summed up as floats
        assert passed <= 10 + now * 100 + 1e-6


def test_tokens_are_kept_for_more_urgent_calls() -> None:
    bucket = TokenBucket(per_second=10, burst=3, now=0.0)
    assert [bucket.take(0.0, keep=1) for _ in range(3)] == [True, True, False]
    assert bucket.wait_seconds(0.0, keep=1) == pytest.approx(0.1)
    assert (bucket.wait_seconds(0.0), bucket.take(0.0), bucket.take(0.0)) == (0.0, True, False)
    assert bucket.wait_seconds(0.05) == pytest.approx(0.05)


def test_a_reserved_token_is_waited_for() -> None:
    bucket = TokenBucket(per_second=10, burst=2, now=0.0)
    assert [bucket.reserve(0.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert not bucket.take(0.2)
    assert bucket.reserve(1.0) == 0.0
