"""The token bucket, with a clock that only the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_common.token_bucket import TokenBucket


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


def test_a_reserved_token_is_waited_for() -> None:
    bucket = TokenBucket(per_second=10, burst=2, now=0.0)
    assert [bucket.reserve(0.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert not bucket.take(0.2)
    assert bucket.reserve(1.0) == 0.0
