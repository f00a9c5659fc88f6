"""A Lease in memory, and an election for it at a time of its own."""

from dataclasses import dataclass, field, replace

from nodedevice_kube.api_errors import ApiError, Conflict, Unreachable
from nodedevice_kube.leases import Lease
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import Election, LeaderLeases
from nodedevice_operator.leases.leader_election import Timing


class LeaseModel(LeaderLeases):
    """One Lease; `failures` are raised by the next calls, first come first served."""

    def __init__(self) -> None:
        self.lease = Lease()
        self.failures: list[ApiError] = []
        self.is_answer_lost = False
        self._version = 0

    async def read(self, seconds: float | None = None) -> Lease:
        if self.failures:
            raise self.failures.pop(0)
        return self.lease

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        if self.failures:
            raise self.failures.pop(0)
        if lease.version != self.lease.version:
            raise Conflict("PUT", "leases", "the object has been modified", 409)
        self._version += 1
        self.lease = replace(lease, version=str(self._version))
        if self.is_answer_lost:
            raise Unreachable("PUT", "leases", "cut")
        return self.lease


@dataclass
class Run:
    """An election at a time of its own."""

    leases: LeaseModel
    now: list[float] = field(default_factory=lambda: [100.0])
    led: list[bool] = field(default_factory=list)
    without_leader_since: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fence = WriteFence(lambda: self.now[0])
        self.election = Election(self.leases, self.fence, Timing(4), "me", self._lead, lambda: self.now[0])

    def _lead(self, another_wrote: bool, nobody_since: float) -> None:
        self.led.append(another_wrote)
        self.without_leader_since.append(nobody_since)

    async def rounds(self, seconds: float) -> None:
        """Let so many seconds pass, with every round when it is due."""
        end = self.now[0] + seconds
        while True:
            pause = await self.election._round()
            if self.now[0] + pause > end:
                self.now[0] = end
                return
            self.now[0] += max(pause, 0.001)


def other(run: Run, renewed: str = "r") -> None:
    """Another holds the Lease, and has just renewed it."""
    version = str(int(run.leases.lease.version or 0) + 1000)
    run.leases.lease = Lease("other", renewed, "a", 4, 7, version)
    run.leases._version = int(version)
