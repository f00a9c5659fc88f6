"""A token bucket: how many calls a second are let through, and how many at once."""


class TokenBucket:
    """Starts full. `now` is monotonic seconds and never runs backwards."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._seen_at = now

    def take(self, now: float) -> bool:
        """Whether a call may pass; one that may not costs nothing."""
        self._tokens = min(self._burst, self._tokens + (now - self._seen_at) * self._per_second)
        self._seen_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
