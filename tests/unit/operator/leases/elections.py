"""A Lease in memory, and an election for it by the loop's clock."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from nodedevice_kube.api_errors import ApiError, Conflict, NoAnswer, Unreachable
from nodedevice_kube.leases import Lease
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import Election, LeaderLeases
from nodedevice_operator.leases.leader_election import Timing

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import later


class LeaseModel(LeaderLeases):
    """One Lease; `failures` are raised by the next calls, first come first served."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.failures: list[ApiError] = []
        self.is_answer_lost = False
        self.version = 0

    async def read(self, seconds: float | None = None) -> Lease:
        if self.failures:
            raise self.failures.pop(0)
        return self.lease

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        if self.failures:
            raise self.failures.pop(0)
        if lease.version != self.lease.version:
            raise Conflict("PUT", "leases", "the object has been modified", 409)
        self.store(lease)
        if self.is_answer_lost:
            raise Unreachable("PUT", "leases", "cut")
        return self.lease

    def store(self, lease: Lease) -> None:
        self.version += 1
        self.lease = lease._replace(version=str(self.version))


class SlowLeases(LeaseModel):
    """Answers after a time of the loop's: those of `seconds`, in turn. applied_after: when within it a write is done."""

    def __init__(self, seconds: tuple[float, ...], applied_after: float = 1.0) -> None:
        super().__init__()
        self.turns: Iterator[float] = itertools.cycle(seconds)
        self.applied_after = applied_after
        self.sent = 0

    async def read(self, seconds: float | None = None) -> Lease:
        await self._answer(next(self.turns), seconds)
        return self.lease

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        if not lease.holder:
            # a release has the timeout of the client
            return await super().write(lease)
        self.sent += 1
        takes = next(self.turns)
        before = min(takes * self.applied_after, takes)
        await self._answer(before, seconds)
        written = await super().write(lease)
        await self._answer(takes - before, None if seconds is None else seconds - before)
        return written

    async def _answer(self, takes: float, seconds: float | None) -> None:
        assert seconds is not None, "it would be waited for without end"
        await later(min(takes, seconds))
        if takes > seconds:
            raise NoAnswer("PUT", "leases", "no response", seconds)


class Run:
    """An election by the loop's clock. led: whether another may have written, at each begin of its lead."""

    def __init__(self, leases: LeaseModel, name: str = "me") -> None:
        self.leases = leases
        self.led: list[bool] = []
        self.without_leader_since: list[float] = []
        # how long the process was stopped
        self.stopped_seconds = 0.0
        self.fence = WriteFence(self.clock)
        self.election = Election(leases, self.fence, Timing(4), name, self._lead, self.clock)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.stopped_seconds

    def _lead(self, another_wrote: bool, nobody_since: float) -> None:
        self.led.append(another_wrote)
        self.without_leader_since.append(nobody_since)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The block begins after its first round, unless answers take time."""
        async with running(self.election.work()):
            await later(0.01)
            yield

    async def closed(self, seconds: float) -> float:
        """For how many of so many seconds the fence is closed from now on, to a tenth."""
        closed = 0
        for _ in range(round(seconds * 10)):
            await later(0.1)
            closed += not self.fence.is_open
        return closed / 10
