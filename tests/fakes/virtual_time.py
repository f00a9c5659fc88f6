"""A test whose seconds pass at once: where all tasks wait, the loop's clock jumps to the next timer.

    from tests.fakes.virtual_time import virtual_time

    @virtual_time
    async def test_something() -> None:
        watches = Watches(cluster, asyncio.get_running_loop().time)
        await asyncio.sleep(300)

Such a test may sleep and compare `loop.time()`: both are exact to some nanoseconds, and the same on each machine. What it tests
takes the loop's `time` as its clock; `time.monotonic` goes on as ever. An `asyncio.timeout` around what hangs ends it at once.

No time passes while a thread of the loop's executor works, and none for what comes over sockets of this process by itself. It is
no use beside what has threads or processes of its own, as gRPC has: their answers come after any number of virtual seconds.
"""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar, TypeVarTuple

import pytest

NAME: Final = "virtual time"
# tests/unit/conftest.py has the loop for this name
virtual_time: Final = pytest.mark.asyncio(loop_factories=[NAME])
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_BEGINNING_SECONDS: Final = 1000.0
# of the loop: who waits for less than a float can add to the clock would wait for ever
_TURN_SECONDS: Final = 1e-9


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._jumps.threads += 1
        future.add_done_callback(lambda _: self._jumps.ended())
        return future


class _JumpingSelector(selectors.DefaultSelector):
    """now: virtual seconds. threads: how many work for the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _BEGINNING_SECONDS
        self.threads = 0

    def ended(self) -> None:
        self.threads -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or self.threads:
            # without a timer there is nothing to jump to; a thread wakes the loop when it has ended
            return super().select(timeout if timeout == 0 else None)
        ready = super().select(0)
        if not ready:
            self.now += max(timeout, _TURN_SECONDS)
        return ready


async def later(seconds: float) -> None:
    """For what a virtual time's test calls: so many seconds of the loop's."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()
