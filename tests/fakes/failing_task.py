"""In place of a background task's work: it fails in every way that a task can, and then goes on."""

import asyncio
from typing import Final

# of the system, of a thread, of foreign text, of a foreign object, a bug
FAILURES: Final = (
    OSError("No such device"),
    RuntimeError("can't start new thread"),
    UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"),
    RecursionError("maximum recursion depth exceeded"),
    ValueError("two\nlines"),
)


class Failing:
    """Fails by each of these in turn, and then goes on for ever."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = iter(failures)
        self.times = 0
        self.is_well = asyncio.Event()

    async def work(self, *given: object, **_: object) -> None:
        self.times += 1
        for each in given:
            if isinstance(each, asyncio.Event):
                # what waits for the beginning of it
                each.set()
        for failure in self.failures:
            raise failure
        self.is_well.set()
        await asyncio.Event().wait()
