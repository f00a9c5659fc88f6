"""Splits a stream of chunks into lines, as the events of a watch."""

import asyncio
import sys
from collections.abc import AsyncIterator


async def lines(chunks: AsyncIterator[bytes], most_bytes: int = sys.maxsize) -> AsyncIterator[bytes]:
    """Yield whole lines; a line longer than most_bytes is cut, and an incomplete last one is dropped.

    Only a line feed ends a line: JSON may contain all other line separators.
    """
    parts: list[bytes] = []
    left = most_bytes
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first[:left])
        left = max(0, left - len(first))
        for other in others:
            yield b"".join(parts)
            parts, left = [other[:most_bytes]], max(0, most_bytes - len(other))
        # the next chunk may be minutes away, and this one may hold a device's whole list
        del chunk, first, others
        # a chunk that has arrived gives other tasks no turn
        await asyncio.sleep(0)
