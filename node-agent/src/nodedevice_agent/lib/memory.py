"""Memory that is not used goes back to the kernel: else an agent would stay as big as the longest device lists have ever made it.

The C library keeps what is freed between what is in use, and gives it back only on request, by the page. That is of use as far as
objects come from there (see __main__, which starts the agent so), and as little is left in each page.
"""

import asyncio
import ctypes
import gc
import logging
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from nodedevice_common.threads import in_thread

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 30.0
# Objects that one search for garbage looks at: up to a microsecond for each.
MOST_SEARCHED: Final = 40_000
_MAPPINGS: Final = Path("/proc/self/smaps")
# code that is mapped from a file: first address, and the one after the last
_CODE: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp [0-9a-f]+ \S+ [1-9][0-9]* +/")
_CHANGED: Final = re.compile(r"^(?:Anonymous|Swap): +[1-9]", re.MULTILINE)
_EACH: Final = re.compile(r"^(?=[0-9a-f]+-)", re.MULTILINE)


async def give_back(has_ended_much: Callable[[], bool]) -> None:
    """For ever, now and then. In threads: finding the code takes 5 ms, and where much is given back that takes a tenth of a second.

    has_ended_much: whether many objects were done with since it was last asked. What is left of them in rings is collected first,
    in the event loop, as gRPC's objects want it: Python by itself waits until there are a quarter more objects. Where there are so
    many that the search would hold the event loop up, it waits until there are fewer.
    """
    # other C libraries have no such function
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    forget_lookups = _lookups_forgetter()
    is_due = False
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        is_due = has_ended_much() or is_due
        if is_due and len(gc.get_objects()) <= MOST_SEARCHED:
            gc.collect()
            is_due = False
        await in_thread(unmap_code)
        forget_lookups()
        if trim is not None:
            await in_thread(lambda: trim(0))


def _lookups_forgetter() -> Callable[[], None]:
    """Empties Python's cache of attributes by type and name; it fills again at the next lookups.

    Where C code asks for a name, as `re.finditer` does, it is a new string each time, and one is kept in each of 4,096 places.
    """
    name = "_clear_internal_caches" if hasattr(sys, "_clear_internal_caches") else "_clear_type_cache"
    found: Callable[[], None] = getattr(sys, name)
    return found


def unmap_code() -> None:
    """Have the kernel map code again as it is used: most of it only starts programs, or takes what comes in bursts.

    It stays in the kernel's cache of files as long as there is room, so that what is used comes back without reading a disk.
    """
    try:
        mappings = _MAPPINGS.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        log.debug("code stays mapped", extra={"error": str(exc)})
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, octets in code_of_files(mappings):
        # what cannot be unmapped stays
        advise(address, octets, mmap.MADV_DONTNEED)


def code_of_files(mappings: str) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of code that is as in its file: what a debugger, say, has changed would be lost.

    mappings: as in /proc/PID/smaps.
    """
    for mapping in _EACH.split(mappings):
        if (code := _CODE.match(mapping)) and not _CHANGED.search(mapping):
            first, end = (int(address, 16) for address in code.groups())
            yield first, end - first
