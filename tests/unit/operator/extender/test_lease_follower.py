"""An extender beside a kube-scheduler: it is a candidate while that one leads, and at no other time."""

import pytest
from nodedevice_kube.api_errors import Unreachable
from nodedevice_kube.leases import Lease
from nodedevice_operator.extender.lease_follower import LeaseFollower
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import Election, LeaderLeases
from nodedevice_operator.leases.leader_election import Timing


class SchedulerLease(LeaderLeases):
    """The holders that it has, one after the other; then it cannot be read."""

    def __init__(self, *holders: str) -> None:
        self.holders = list(holders)

    async def read(self, seconds: float | None = None) -> Lease:
        if not self.holders:
            raise Unreachable("GET", "leases", "cut")
        return Lease(self.holders.pop(0))


class Part(Election):
    """Whether it takes part, each time that this is set."""

    def __init__(self) -> None:
        super().__init__(SchedulerLease(), WriteFence(), Timing(4), "me", lambda *_: None, is_candidate=False)
        self.parts: list[bool] = []

    def take_part(self) -> None:
        self.parts.append(True)

    async def stand_aside(self, until_quiet: object) -> None:
        self.parts.append(False)


async def quiet() -> bool:
    return True


@pytest.mark.parametrize(
    ("holders", "parts"),
    [
        pytest.param(["pod-a_1"], [True], id="ours"),
        pytest.param([""], [False], id="nobody's"),
        pytest.param(["pod-b_1"], [False], id="another's"),
        pytest.param(["pod-aa_1"], [False], id="of a longer name"),
        pytest.param(["pod-a_1", "pod-a_1", "pod-b_2", "pod-a_3"], [True, False, True], id="changes"),
    ],
)
async def test_it_is_a_candidate_while_the_scheduler_beside_it_leads(holders: list[str], parts: list[bool]) -> None:
    election, lease = Part(), SchedulerLease(*holders)
    follower = LeaseFollower(lease, election, "pod-a", quiet)
    # that it cannot be read any more changes nothing
    for _ in range(len(holders) + 1):
        await follower.round()
    assert election.parts == parts
