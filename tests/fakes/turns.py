"""What an event loop does between two yields: the cost of each of its turns, in lines of Python or in CPU time of its thread.

    with turns(Lines()) as found:
        await asyncio.sleep(0)
        ...
    assert found.most.cost < 1000

A turn is a callback, or a task from where it goes on to where it waits again: nothing else of that loop runs meanwhile. Where it
is not used it costs nothing. Lines are the same on each machine; an iteration of a comprehension is one. What a function in C does
with many objects is one call for them, ten to fifty times as fast as lines: CPU time shows it.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Meter(Protocol):
    """Of one thread."""

    def begin(self) -> None: ...

    def end(self) -> float:
        """The cost since it began."""


class CpuSeconds:
    """Of the thread that runs the loop: not of others, for whose work it waits."""

    def __init__(self) -> None:
        self._began = 0.0

    def begin(self) -> None:
        self._began = time.thread_time()

    def end(self) -> float:
        return time.thread_time() - self._began


class Lines:
    """Lines of Python, and how often each is run."""

    def __init__(self) -> None:
        self._count = 0

    def begin(self) -> None:
        self._count = 0
        # coverage traces, too
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def end(self) -> float:
        sys.settrace(self._before)
        return self._count

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._count += 1
        return self._trace


class Turn:
    """cost: by the meter. name: of what ran, for people."""

    def __init__(self, cost: float, name: str) -> None:
        self.cost = cost
        self.name = name

    def __repr__(self) -> str:
        return f"{self.cost:,.4g} in {self.name}"


class Turns:
    """most: the one that cost most so far. count: how many there were."""

    def __init__(self) -> None:
        self.most = Turn(0, "nothing")
        self.count = 0


@contextmanager
def turns(meter: Meter) -> Iterator[Turns]:
    """Of the loop of this thread, for the length of the block."""
    found, thread, run = Turns(), threading.get_ident(), asyncio.Handle._run

    def metered(handle: Any) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        meter.begin()
        try:
            run(handle)
        finally:
            cost = meter.end()
            if cost > found.most.cost:
                found.most = Turn(cost, name_of(handle))
            found.count += 1

    asyncio.Handle._run = metered  # type: ignore[assignment, method-assign]
    try:
        yield found
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


def name_of(handle: Any) -> str:
    """Of what a turn runs, for people."""
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"{task.get_coro()!r:.120}"
    return f"{callback!r:.120}"
