"""Decides how long to wait before a request is retried. Pure: random numbers are arguments."""

from nodedevice_kube.api_errors import ApiError

# 2 to this power exceeds every limit; beyond about 1,000 a float overflows
_MAX_DOUBLINGS = 64


class Retries:
    """Growing, spread pauses of one retried thing, at least as long as the API server asks.

    longest_seconds: of a pause that the API server did not ask for.
    """

    __slots__ = ("_first_seconds", "_longest_seconds", "failures")

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds, self._longest_seconds = first_seconds, longest_seconds
        self.failures = 0

    def failed(self, error: ApiError | None, random_number: float) -> float:
        """Return the seconds until the next attempt. random_number: from 0 to 1, a new one each time, so that clients spread."""
        self.failures += 1
        asked = error.retry_after_seconds if error is not None else 0.0
        return max(spread_pause(self.failures, self._first_seconds, self._longest_seconds, random_number), asked)

    def succeeded(self) -> None:
        self.failures = 0


def spread_pause(failures: int, first_seconds: float, longest_seconds: float, random_number: float) -> float:
    """Return from half to all of: twice first_seconds, doubled for each failure after the first, at most longest_seconds."""
    most = min(first_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS), longest_seconds)
    return most * (1 + random_number) / 2
