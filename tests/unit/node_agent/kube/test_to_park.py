"""Which names go without a watch, and when those are visited: as often as an API server can bear."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.kube.parked import GONE_SECONDS, MOST_WATCHED, VISIT_SECONDS, Parked, to_park

from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario, pod

Happens = Callable[[Scenario], object]
NAMES = [f"example.com/r{number:02}" for number in range(MOST_WATCHED + 2)]
LAST = NAMES[-1]


def gone(**options: Any) -> Scenario:
    """Plugins of all names that ended a while ago."""
    scenario = Scenario(**options)
    scenario.manager.places.are_pods_known = True
    for endpoint, name in enumerate(NAMES, start=1):
        scenario.plugin(1, name, endpoint)
        scenario.happens("table.cordoned", name, "uid", {})
        scenario.disconnect(name, endpoint)
    scenario.passes(GONE_SECONDS)
    return scenario


def chosen(
    scenario: Scenario, *others: Scenario, names: Sequence[str] = NAMES, parked: Sequence[str] = ()
) -> frozenset[str]:
    manager = scenario.manager
    known = [manager.resources, *(other.manager.resources for other in others)]
    return to_park(names, parked, manager.places.taken(), known, scenario.now)


@pytest.mark.parametrize("count", [MOST_WATCHED + 1, len(NAMES)])
def test_all_where_there_are_more_than_a_few(count: int) -> None:
    assert chosen(gone(), names=NAMES[:count]) == {*NAMES[:count]}


def test_of_a_few_those_that_are() -> None:
    few = NAMES[:MOST_WATCHED]
    assert chosen(gone(), names=few) == frozenset()
    assert chosen(gone(), names=few, parked=NAMES[2:5]) == {*NAMES[2:5]}
    assert chosen(gone(), names=few, parked=[LAST]) == frozenset()


def falls_silent(scenario: Scenario) -> None:
    scenario.plugin(1, LAST, 99)
    scenario.manager.table.disconnected(LAST, 99, scenario.now, is_silent=True)
    scenario.passes(GONE_SECONDS)


@pytest.mark.parametrize(
    ("happens", "is_parked"),
    [
        pytest.param(lambda s: s.passes(STOP_GRACE_PERIOD_SECONDS), True, id="gone for good"),
        pytest.param(lambda s: s.plugin(1, LAST, 99), False, id="served"),
        pytest.param(lambda s: (s.plugin(1, LAST, 99), s.disconnect(LAST, 99)), False, id="just gone"),
        pytest.param(falls_silent, False, id="silent"),
        pytest.param(lambda s: s.cordon(LAST, ["d0"]), False, id="cordoned"),
        pytest.param(lambda s: s.manager.resources[LAST].use.holders.update(d0="u"), False, id="held"),
        pytest.param(lambda s: s.see(pod("u", Container("c", limits={LAST: 1}))), False, id="asked for"),
        pytest.param(lambda s: s.happens("table.displaced", [LAST], "a.com/b"), False, id="its place is taken"),
        pytest.param(lambda s: setattr(s.manager.places, "are_pods_known", False), False, id="pods unknown"),
        pytest.param(lambda s: s.manager.resources.pop(LAST), False, id="forgotten"),
    ],
)
def test_only_what_nobody_needs_and_that_is_gone_for_a_minute(happens: Happens, *, is_parked: bool) -> None:
    scenario = gone()
    happens(scenario)
    assert (LAST in chosen(scenario)) is is_parked


def test_not_what_the_kubelet_serves() -> None:
    kubelets = Scenario()
    kubelets.plugin(1, LAST, 1)
    scenario = gone()
    assert LAST not in chosen(scenario, kubelets)
    kubelets.disconnect(LAST, 1)
    kubelets.passes(STOP_GRACE_PERIOD_SECONDS)
    assert LAST in chosen(scenario, kubelets)


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
