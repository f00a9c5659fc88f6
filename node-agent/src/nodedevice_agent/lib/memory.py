"""Memory that is not used goes back to the kernel: else an agent would stay as big as the longest device lists have ever made it.

The C library keeps what is freed between what is in use, and releases it only on request, by the page. That is of use as far as
objects come from there (see __main__, which starts the agent so), and as little is left in each page.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

from nodedevice_common.threads import in_thread

EVERY_SECONDS: Final = 30.0
# Objects that one search for garbage looks at: up to a microsecond for each.
MOST_SEARCHED: Final = 40_000


async def release(has_ended_much: Callable[[], bool]) -> None:
    """For ever, now and then; in a thread, as a release of much takes a tenth of a second.

    has_ended_much: whether many objects were done with since it was last asked. What is left of them in rings is collected first,
    in the event loop, as gRPC's objects want it: Python by itself waits until there are a quarter more objects. Where there are so
    many that the search would hold the event loop up, it waits until there are fewer.
    """
    # other C libraries have no such function
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    is_due = False
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        is_due = has_ended_much() or is_due
        if is_due and len(gc.get_objects()) <= MOST_SEARCHED:
            gc.collect()
            is_due = False
        if trim is not None:
            await in_thread(lambda: trim(0))
