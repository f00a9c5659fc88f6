"""Something that has to go on for ever, whatever breaks: said once when it breaks, tried again with growing pauses."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nodedevice_common.backoff import exponential_seconds

from nodedevice_agent.errors import ApiAway, ApiError, ApiGone

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


def pause_seconds(failures: int) -> float:
    """0.5 to 30 seconds, growing; at random, so that a fleet of agents does not come back in step."""
    return random.uniform(
        FIRST_PAUSE_SECONDS, exponential_seconds(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    )


def complain(event: str, error: ApiError, **where: str) -> bool:
    """Warn, and return whether that was done: that there is no connection is said by edges/cluster, for all who find out."""
    is_said = not isinstance(error, ApiAway)
    log.log(logging.WARNING if is_said else logging.DEBUG, event, extra={**where, "error": str(error)})
    return is_said


async def forever(what: str, once: Callable[[], Awaitable[None]]) -> None:
    """Call `once` again and again until cancelled: anew at once when it returns, after a pause when it raises ApiError.

    What had worked for longer than the longest pause begins again with the shortest.
    """
    failures, is_said = 0, False
    while True:
        started = time.monotonic()
        try:
            await once()
            failures, is_said = 0, False
        except ApiGone:
            failures, is_said = 0, False
        except ApiError as exc:
            if time.monotonic() - started > LONGEST_PAUSE_SECONDS:
                failures, is_said = 0, False
            failures += 1
            is_said = is_said or complain("api server: trying again", exc, what=what)
            await asyncio.sleep(pause_seconds(failures))


async def until_done(what: str, once: Callable[[], Awaitable[T]], but: type[ApiError] | tuple[()] = ()) -> T:
    """Call `once` until it does not raise ApiError (`but` for one kind), with the same pauses. Returns what it returned."""
    failures, is_said = 0, False
    while True:
        try:
            return await once()
        except but:
            raise
        except ApiError as exc:
            failures += 1
            is_said = is_said or complain("api server: trying again", exc, what=what)
            await asyncio.sleep(pause_seconds(failures))
