"""Waiting for something that the API shows some time after it was asked for."""

from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed


def wait_until(
    is_so: Callable[[], bool], what: str, timeout_seconds: float = 60.0, every_seconds: float = 0.05
) -> None:
    """Ask until it is so. Raises TimeoutError, saying what was not so, when timeout_seconds are over."""
    asking = Retrying(
        retry=retry_if_result(lambda answer: not answer),
        wait=wait_fixed(every_seconds),
        stop=stop_after_delay(timeout_seconds),
    )
    try:
        asking(is_so)
    except RetryError as exc:
        raise TimeoutError(f"not so within {timeout_seconds:.0f} s: {what}") from exc
