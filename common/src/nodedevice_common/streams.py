"""Whole lines of a stream that arrives in pieces, as the events of a watch do."""

import asyncio
import sys
from collections.abc import AsyncIterator


async def lines(chunks: AsyncIterator[bytes], most_bytes: int = sys.maxsize) -> AsyncIterator[bytes]:
    """Each line, wherever its chunks end; an incomplete last one is dropped, and one that is longer than most_bytes is cut off.

    Only a line feed ends a line: JSON may hold all the other characters that end one in a text.
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
        # the next one may be minutes away, and a device's whole list in this one
        del chunk, first, others
        # a chunk that was there already gives no turn to anybody else
        await asyncio.sleep(0)
