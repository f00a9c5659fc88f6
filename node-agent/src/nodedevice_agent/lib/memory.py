"""Memory that is not used goes back to the kernel: else an agent would stay as big as the longest device lists have ever made it.

The C library keeps what is freed between what is in use, and gives it back only on request. That is of use as far as
objects come from there: see __main__, which starts the agent so.
"""

import asyncio
import ctypes
from typing import Final

from nodedevice_common.threads import in_thread

EVERY_SECONDS: Final = 30.0


async def give_back() -> None:
    """For ever, now and then. In a thread: where much is given back it takes a tenth of a second."""
    # other C libraries have no such function
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(EVERY_SECONDS)
        await in_thread(lambda: trim(0))
