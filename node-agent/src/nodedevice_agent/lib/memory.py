"""Returns unused memory to the kernel; otherwise an agent keeps the size of the longest device lists it ever made.

The C library keeps freed memory between used blocks, and releases it only on request, by whole pages. This helps only if objects
are allocated there (__main__ starts the agent so) and few pages are partly used.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

from nodedevice_common.threads import in_thread

EVERY_SECONDS: Final = 30.0
# Objects that one garbage collection visits: up to a microsecond for each.
MOST_SEARCHED: Final = 40_000


async def release(has_ended_much: Callable[[], bool]) -> None:
    """Release memory periodically, forever; in a thread, as a large release takes a tenth of a second.

    has_ended_much: whether many objects were dropped since the last call. Their cycles are collected first, in the event loop, as
    gRPC's objects require it: Python itself waits until there are a quarter more objects. With too many objects a collection
    would block the event loop, so it waits until there are fewer.
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
