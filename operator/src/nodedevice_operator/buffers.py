"""Buffers go back to the kernel when they are freed.

By default the C library raises its mmap threshold of 128 KiB each time a larger buffer is freed. Freed buffers then stay in the
arenas of the threads, which decode the pages of lists: 20 MiB after a list of one node's objects.
"""

import ctypes
import os
from typing import Final

# Source: malloc.h of the GNU C library; a threshold that is set stays.
_M_MMAP_THRESHOLD: Final = -3
_OCTETS: Final = 128 * 1024
_CHOSEN: Final = "MALLOC_MMAP_THRESHOLD_"


def keep_small() -> None:
    """From now on, in this process; not where the environment has another threshold, or the C library none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and _CHOSEN not in os.environ:
        mallopt(_M_MMAP_THRESHOLD, _OCTETS)
