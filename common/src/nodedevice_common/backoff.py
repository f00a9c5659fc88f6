"""Exponential backoff: how long to wait before the next attempt. Pure; `jitter` spreads the delays."""

from dataclasses import dataclass

# 2 to this power exceeds every limit; beyond about 1,000 a float overflows
_MAX_DOUBLINGS = 64


def exponential_seconds(retries: int, first_seconds: float, limit_seconds: float) -> float:
    """The delay after `retries` earlier retries: first_seconds, doubled for each of them, at most limit_seconds."""
    return float(min(first_seconds * 2.0 ** min(retries, _MAX_DOUBLINGS), limit_seconds))


@dataclass(slots=True)
class Backoff:
    """Growing delays in seconds; one instance for each thing that is retried."""

    first_seconds: float = 0.2
    limit_seconds: float = 30.0
    _retries: int = 0

    def next(self) -> float:
        """The delay before the next attempt, in seconds."""
        delay = exponential_seconds(self._retries, self.first_seconds, self.limit_seconds)
        self._retries += 1
        return delay

    def reset(self) -> None:
        """The attempt succeeded: start again with the first delay."""
        self._retries = 0
