"""Retries of requests to the API server: with growing pauses, and logged once."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nodedevice_common.pacing import exponential_seconds

from nodedevice_agent.errors import ApiDisconnected, ApiRequestError, ApiUnauthorized

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


def pause_seconds(failures: int) -> float:
    """0.5 to 30 seconds, growing; random, so that the agents of a fleet do not retry in step."""
    return random.uniform(
        FIRST_PAUSE_SECONDS, exponential_seconds(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    )


def log_failure(event: str, error: ApiRequestError, **fields: str) -> bool:
    """Warn, and return whether that was done. What all requests have in common is logged by the client, once."""
    is_warned = not isinstance(error, ApiDisconnected | ApiUnauthorized)
    log.log(logging.WARNING if is_warned else logging.DEBUG, event, extra={**fields, "error": str(error)})
    return is_warned


async def until_done(once: Callable[[], Awaitable[T]], but: type[ApiRequestError] | tuple[()] = ()) -> T:
    """Call `once` until it does not raise ApiRequestError, with growing pauses. Returns its result. but: an error to raise.

    What worked for longer than the longest pause starts with the shortest pause again.
    """
    failures, is_logged = 0, False
    while True:
        started = time.monotonic()
        try:
            return await once()
        except but:
            raise
        except ApiRequestError as exc:
            if time.monotonic() - started > LONGEST_PAUSE_SECONDS:
                failures, is_logged = 0, False
            failures += 1
            is_logged = is_logged or log_failure("API request failed; retrying", exc)
            await asyncio.sleep(pause_seconds(failures))
