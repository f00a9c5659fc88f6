"""Polls of the Leases that are brought forward: for few of the nodes whose agent is silent, and reports all the same."""

import asyncio
from collections.abc import Callable

from nodedevice_operator.leases.agent_liveness import ALIVE
from nodedevice_operator.leases.agent_monitor import INTERVAL_SECONDS
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.leases.watched import Watched

pytestmark = virtual_time


def noted_polls(made: Watched) -> list[float]:
    """When the Leases are listed, from now on."""
    polls: list[float] = []
    made.monitor.on_poll = lambda _: polls.append(asyncio.get_running_loop().time())
    return polls


async def test_a_silent_agent_that_reports_without_end_brings_few_polls_forward(
    watched: Callable[..., Watched],
) -> None:
    """Its token is enough for that, and each poll lists the Leases of all nodes."""
    made = watched("node-a", "node-b")
    made.cluster.leases = {"node-a": LeaseRecord("1", 5), "node-b": LeaseRecord("1", 5)}
    polls = noted_polls(made)
    [one, other] = made.cache.node_devices.values()
    async with running(made.monitor.work()):
        await asyncio.sleep(60)
        before = len(polls)
        for _ in range(600):
            made.monitor.on_update(one.node, None, one)
            await asyncio.sleep(0.1)
        assert len(polls) - before <= 2 * 60 / INTERVAL_SECONDS + 2
        # another node is not kept waiting by it
        made.cluster.leases[other.node] = LeaseRecord("2", 60)
        made.monitor.on_update(other.node, None, other)
        await asyncio.sleep(2.5)
        assert made.monitor.state(other.node) is ALIVE


async def test_many_that_are_silent_and_report_bring_few_polls_forward(watched: Callable[..., Watched]) -> None:
    made = watched(*(f"node-{number}" for number in range(120)))
    made.cluster.leases = {node: LeaseRecord("1", 5) for node in made.cache.node_devices.nodes()}
    polls = noted_polls(made)
    known = made.cache.node_devices.values()
    async with running(made.monitor.work()):
        await asyncio.sleep(60)
        before = len(polls)
        for number in range(600):
            record = known[number % len(known)]
            made.monitor.on_update(record.node, None, record)
            await asyncio.sleep(0.1)
        # three at once, and one in two seconds
        assert 28 <= len(polls) - before <= 36
