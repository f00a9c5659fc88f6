"""Waits until an operator has no work left."""

import asyncio
from collections import Counter
from collections.abc import Callable

from hack.bench.operator.measured import Settled

QUIET_SECONDS = 3.0
MOST_SECONDS = 1200.0
_POLL_SECONDS = 0.25


async def settled(take_writes: Callable[[], Counter[str]], is_done: Callable[[], bool], began: float) -> Settled:
    """Wait until the operator writes nothing for some seconds, leads, and no node waits: a lapse of its Lease also ends
    its writes.

    take_writes: its writes since the last call, by kind. is_done: whether it leads without work. began: by the loop's
    clock.
    Raises TimeoutError with its remaining work.
    """
    clock = asyncio.get_running_loop().time
    writes, deadline, quiet_since = Counter[str](), clock() + MOST_SECONDS, clock()
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        more = take_writes()
        writes += more
        now = clock()
        if more:
            quiet_since = now
        elif now - quiet_since >= QUIET_SECONDS:
            if is_done():
                return Settled(quiet_since - began, writes)
            quiet_since = now
        if now > deadline:
            doing = f"it writes {dict(more)}" if more else "it does not lead, or nodes wait for it"
            raise TimeoutError(f"the operator is not done after {MOST_SECONDS:.0f} s: {doing}")
