"""Measures how long a change waits for its Node after the leading operator was killed or asked to end.

Two operators run; the one that ended is the standby of the next round. The change is sent right after the end. So the
figure includes the rest of the expiring lease, and the new leader's work before it reaches that Node.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from hack.bench.operator.counts import is_leader_without_work
from hack.bench.operator.generator import Command, Report
from hack.bench.operator.observer import NodeObserver
from tests.cluster.local.stack import Program
from tests.cluster.processes.processes import Process

ROUNDS = 3
_READY_SECONDS = 300.0
_TAKEN_OVER_SECONDS = 300.0
_RATE = 50.0
_POLL_SECONDS = 0.05


class Pair:
    """Two operators; the first leads and already runs. `ask` sends a command to the generator."""

    def __init__(self, leader: Program, other: Program, ask: Callable[[Command], Awaitable[Report]]) -> None:
        self._leader = leader
        self._other = other
        self._ask = ask
        self._alive: tuple[Program, ...] = (leader,)

    def verify(self) -> None:
        """Raise ComponentError if a process has ended by itself."""
        for program in self._alive:
            program.process.verify_alive()

    async def crashes(self, observer: NodeObserver) -> AsyncIterator[float]:
        """Seconds from the kill of the leader until the Node shows a change that is sent right after it, repeated."""
        for _ in range(ROUNDS):
            yield await self._take_over(observer, Process.kill)

    async def clean_ends(self, observer: NodeObserver) -> AsyncIterator[float]:
        """Seconds from the SIGTERM of the leader until the Node shows a change that is sent right after it, repeated."""
        for _ in range(ROUNDS):
            yield await self._take_over(observer, _terminate)

    def end(self) -> None:
        """Kill the running processes."""
        for program in (self._leader, self._other):
            program.process.kill()

    async def _take_over(self, observer: NodeObserver, end: Callable[[Process], None]) -> float:
        if self._other.process.pid is None:
            self._other.process.start()
        self._alive = (self._leader, self._other)
        await self._until("one operator leads, no node waits for it, and the other one is ready", self._is_settled)
        ended = self._leader
        self._alive = (self._other,)
        ended_at = time.monotonic()
        end(ended.process)
        report = await self._ask(Command("change", seconds=1 / _RATE, rate=_RATE))
        [waited] = await observer.wait_changes(report.changes, _TAKEN_OVER_SECONDS)
        [change] = report.changes
        assert waited is not None, "the only change cannot be followed by another"
        await self._until("the other one has ended", lambda: ended.process.pid is None)
        self._leader, self._other = self._other, ended
        return change.sent_at + waited - ended_at

    def _is_settled(self) -> bool:
        """Whether one leads without work, and the other has seen every change."""
        return is_leader_without_work(self._leader.address) and self._other.is_ready()

    async def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not is_so():
            self.verify()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not so within {_READY_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)


def _terminate(process: Process) -> None:
    process.signal(signal.SIGTERM)
