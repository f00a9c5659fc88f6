"""A token bucket: how many calls a second pass, and how many at once. Pure: every method takes `now`."""


def refilled(tokens: float, passed_seconds: float, per_second: float, burst: float) -> float:
    """The tokens in a bucket after that time."""
    return min(burst, tokens + passed_seconds * per_second)


class TokenBucket:
    """Starts full. `now` is monotonic seconds and never runs backwards."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = now

    def take(self, now: float) -> bool:
        """Whether a call may pass; a rejected call costs nothing."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def reserve(self, now: float) -> float:
        """Take a token in any case. Returns how many seconds the caller has to wait for it."""
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)

    def _fill(self, now: float) -> None:
        self._tokens = refilled(self._tokens, now - self._filled_at, self._per_second, self._burst)
        self._filled_at = now
