"""How long to wait before a request is sent again. Pure: random numbers are arguments."""

from dataclasses import dataclass

from nodedevice_kube.api_errors import ApiError

# 2 to this power exceeds every limit; beyond about 1,000 a float overflows
_MAX_DOUBLINGS = 64


@dataclass(slots=True)
class Retries:
    """The pauses of one thing that is retried: growing, spread, and as long as the API server asks for.

    first_seconds: the shortest pause. longest_seconds: of a pause for which the API server has not asked.
    """

    first_seconds: float
    longest_seconds: float
    failures: int = 0

    def failed(self, error: ApiError | None, random_number: float) -> float:
        """Seconds until the next attempt. random_number: from 0 to 1, a new one for each: clients do not retry in step."""
        self.failures += 1
        asked = error.retry_after_seconds if error is not None else 0.0
        return max(spread_pause(self.failures, self.first_seconds, self.longest_seconds, random_number), asked)

    def succeeded(self) -> None:
        """The next failure starts with the shortest pause again."""
        self.failures = 0


def spread_pause(failures: int, first_seconds: float, longest_seconds: float, random_number: float) -> float:
    """From half of a limit to all of it: twice first_seconds, doubled for each further failure, at most longest_seconds.

    failures: at least 1.
    """
    most = min(first_seconds * 2.0 ** min(failures, _MAX_DOUBLINGS), longest_seconds)
    return most * (1 + random_number) / 2
