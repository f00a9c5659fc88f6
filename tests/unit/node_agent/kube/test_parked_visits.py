"""When parked names are visited: as often as an API server can bear, and whatever becomes of one visit."""

import asyncio
from collections import Counter

from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.kube.parked import VISIT_SECONDS, Parked

from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time


class Visits:
    """Of as many names as a node has: when each was. Each takes so long."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.times: list[float] = []
        self.of: Counter[str] = Counter()
        self.fails: Exception | None = None
        self.parked = Parked(self._visit, asyncio.get_running_loop().time)
        for number in range(MAX_NAMES):
            self.parked.add(f"n{number}")
        self.parked.is_worked = True
        self._seconds = seconds

    async def _visit(self, name: str) -> None:
        self.times.append(asyncio.get_running_loop().time())
        self.of[name] += 1
        await later(self._seconds)
        if self.fails:
            raise self.fails


@virtual_time
async def test_as_many_as_a_node_has_make_about_a_request_a_second() -> None:
    visits = Visits()
    began = asyncio.get_running_loop().time()
    async with background(visits.parked.work()):
        await asyncio.sleep(20 * VISIT_SECONDS)
    assert len(visits.times) / (20 * VISIT_SECONDS) < 1.2
    assert sum(at < began + 5.0 for at in visits.times) < MAX_NAMES / 4, "they do not come all at once"
    assert {*visits.of.values()} <= {18, 19, 20}


@virtual_time
async def test_one_that_takes_long_is_not_begun_twice_and_delays_no_other() -> None:
    visits = Visits(10 * VISIT_SECONDS)
    async with background(visits.parked.work()):
        await asyncio.sleep(2 * VISIT_SECONDS)
    assert {*visits.of.values()} == {1}
    assert len(visits.of) == MAX_NAMES
