"""Waits for a state that the API shows some time after a request."""

from collections.abc import Callable
from typing import Final

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_exponential

# Short pauses at first, then longer ones: polling uses CPU time that the awaited program needs.
_LONGEST_PAUSE_SECONDS: Final = 0.25
_GROWTH: Final = 1.2


def pauses(first_seconds: float = 0.05) -> wait_exponential:
    """Pauses between polls: a fifth longer each time, up to a quarter of a second, or to the first pause if that is
    longer.
    """
    return wait_exponential(first_seconds, max(first_seconds, _LONGEST_PAUSE_SECONDS), _GROWTH)


def wait_until(
    is_so: Callable[[], bool], what: str, timeout_seconds: float = 60.0, every_seconds: float = 0.05
) -> None:
    """Poll until it is so, every_seconds at first. After timeout_seconds raises TimeoutError, which names the condition."""
    asking = Retrying(
        retry=retry_if_result(lambda answer: not answer),
        wait=pauses(every_seconds),
        stop=stop_after_delay(timeout_seconds),
    )
    try:
        asking(is_so)
    except RetryError as exc:
        raise TimeoutError(f"not so within {timeout_seconds:.0f} s: {what}") from exc
