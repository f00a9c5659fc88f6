"""Retries of requests to the API server: with growing pauses, and logged once."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nodedevice_kube.api_errors import ApiError, NoAnswer, Silent, Unauthorized, Unreachable, WatchInterrupted
from nodedevice_kube.retries import spread_pause

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


def pause_seconds(failures: int, error: ApiError | None = None) -> float:
    """0.5 to 30 seconds, growing, random, and as long at least as the API server asks for."""
    pause = spread_pause(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, random.random())
    return max(pause, error.retry_after_seconds if error is not None else 0.0)


def is_disconnected(error: ApiError) -> bool:
    """Whether the connection failed; silence on an open one does not count. The client has logged it once for all requests."""
    return isinstance(error, Unreachable | WatchInterrupted) and not isinstance(error, NoAnswer | Silent)


def log_failure(event: str, error: ApiError, **fields: str) -> bool:
    """Log a warning, and return whether it was logged. The client logs failures of the connection, once for all requests."""
    is_warned = not (is_disconnected(error) or isinstance(error, Unauthorized))
    log.log(logging.WARNING if is_warned else logging.DEBUG, event, extra={**fields, "error": str(error)})
    return is_warned


async def until_done(once: Callable[[], Awaitable[T]], but: type[ApiError] | tuple[()] = ()) -> T:
    """Call `once` until it does not raise ApiError, with growing pauses. Returns its result. but: an error to raise."""
    failures, is_logged = 0, False
    while True:
        failures += 1
        try:
            return await once()
        except but:
            raise
        except ApiError as exc:
            is_logged = is_logged or log_failure("API request failed; retrying", exc)
            await asyncio.sleep(pause_seconds(failures, exc))
