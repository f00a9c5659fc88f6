"""Buffers take no more memory than they need: large ones go back to the kernel when they are freed, those of connections are small.

The C library asks the kernel for what is larger than 128 KiB, and for ever larger ones itself once such have been freed. Those of
each thread stay then, with what the threads have left between them (pages of lists are decoded in threads): 20 MiB after a list of
what one node may have written.

asyncio has a buffer of 256 KiB for each TLS connection, filled with zeros, and makes another one for each read: 40 MiB where 160
requests are answered side by side.
"""

import ctypes
import os
from asyncio.sslproto import SSLProtocol
from typing import Final

# Source: malloc.h of the GNU C library; a threshold that is set stays.
_M_MMAP_THRESHOLD: Final = -3
_OCTETS: Final = 128 * 1024
_CHOSEN: Final = "MALLOC_MMAP_THRESHOLD_"
# of two TLS records, and one page of a list in some dozen reads
_OCTETS_OF_CONNECTION: Final = 32 * 1024


def keep_small() -> None:
    """From now on, in this process."""
    _give_back_at_once()
    # an attribute of the class, in every Python so far
    SSLProtocol.max_size = _OCTETS_OF_CONNECTION


def _give_back_at_once() -> None:
    """Not where the environment has another threshold, or the C library none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and _CHOSEN not in os.environ:
        mallopt(_M_MMAP_THRESHOLD, _OCTETS)
