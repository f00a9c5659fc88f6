"""Buffers go back to the kernel when they are freed.

The C library asks the kernel for what is larger than 128 KiB, and for ever larger ones itself once such have been freed. Those of
each thread stay then, with what the threads have left between them (pages of lists are decoded in threads): 20 MiB after a list of
what one node may have written.
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
