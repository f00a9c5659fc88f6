"""Paces attempts: exponential backoff, jitter, token bucket. Pure: time and random numbers are arguments."""

from msgspec import Struct

# 2 to this power exceeds every limit; beyond about 1,000 a float overflows
_MAX_DOUBLINGS = 64


def exponential_seconds(retries: int, first_seconds: float, limit_seconds: float) -> float:
    """Return the delay after `retries` retries: first_seconds, doubled for each, at most limit_seconds."""
    return float(min(first_seconds * 2.0 ** min(retries, _MAX_DOUBLINGS), limit_seconds))


def jittered(seconds: float, spread: float, random_number: float) -> float:
    """Spread `seconds` by up to that share in both directions, so that clients do not retry in step.

    spread: 0.2 for a fifth. random_number: from 0 to 1, a new one for each delay.
    """
    return seconds * (1 - spread + 2 * spread * random_number)


class Backoff(Struct):
    first_seconds: float = 0.2
    limit_seconds: float = 30.0
    _retries: int = 0

    def next(self) -> float:
        delay = exponential_seconds(self._retries, self.first_seconds, self.limit_seconds)
        self._retries += 1
        return delay

    def reset(self) -> None:
        """Start with the first delay again, after a success."""
        self._retries = 0


class TokenBucket:
    """Limits calls per second and at once. Starts full. `now` is monotonic seconds."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = now

    def take(self, now: float, keep: int = 0) -> bool:
        """Whether a call may pass; a rejected call costs nothing. keep: tokens for more urgent calls."""
        if self.wait_seconds(now, keep) > 0.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_seconds(self, now: float, keep: int = 0) -> float:
        """Return the time until a call may pass. Takes nothing."""
        self._fill(now)
        return max(0.0, (1.0 + keep - self._tokens) / self._per_second)

    def reserve(self, now: float) -> float:
        """Take a token in any case. Return how long the caller has to wait for it."""
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
