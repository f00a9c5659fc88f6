"""Whole lines of a stream that arrives in pieces, as the events of a watch do."""

import asyncio
from collections.abc import AsyncIterator


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each line, however long it is and wherever its chunks end; an incomplete last one is dropped.

    Only a line feed ends a line: JSON may hold all the other characters that end one in a text.
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts)
            parts = [other]
        # the next one may be minutes away, and a device's whole list in this one
        del chunk, first, others
        # a chunk that was there already gives no turn to anybody else
        await asyncio.sleep(0)
