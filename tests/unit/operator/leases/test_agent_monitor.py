"""Polls of the Leases: which nodes are enqueued, what is counted, and what is reported of many at once."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import Unavailable
from nodedevice_operator.leases.agent_liveness import ALIVE, MISSING, AgentState
from nodedevice_operator.leases.agent_monitor import INTERVAL_SECONDS
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import StoredCondition
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.collaborators import running
from tests.fakes.operator.operator_model import NIC, node_device
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.leases.watched import Watched

pytestmark = virtual_time


async def test_a_node_whose_agent_comes_or_goes_is_enqueued() -> None:
    made = Watched("node-a", "node-b")
    made.cache.nodes.put(NodeRecord("node-without-devices", "uid-z", 1, {}))
    made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
    async with made.polling():
        assert {await made.queue.next() for _ in range(3)} == {"node-a", "node-b", "node-without-devices"}
        assert (made.monitor.state("node-a"), made.monitor.state("node-b")) == (ALIVE, MISSING)
        assert (made.agents("alive"), made.agents("missing")) == (1, 1)
        made.cluster.leases["node-b"] = LeaseRecord("1", 60)
        made.cluster.leases["node-of-nobody"] = LeaseRecord("1", 60)
        # a Lease that is missing is looked for at once
        async with asyncio.timeout(1):
            assert await made.queue.next() == "node-b"
        assert (made.queue.is_empty, made.agents("alive")) == (True, 2)


def refused(seconds: float = 0.0) -> Unavailable:
    return Unavailable("get", "leases", "later", 429, retry_after_seconds=seconds)


async def test_a_failed_poll_changes_nothing() -> None:
    made = Watched("node-a")
    made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
    async with made.polling():
        assert await made.queue.next() == "node-a"
        made.cluster.failures["list_leases"] = [refused()] * 3
        made.cluster.leases["node-b"] = LeaseRecord("1", 60)
        made.cache.node_devices.put(node_device(node="node-b", uid="uid-of-node-b"))
        assert await made.queue.next() == "node-b"
        assert made.cluster.failures["list_leases"] == []
    assert made.monitor.state("node-a") is ALIVE
    assert made.queue.is_empty


LATELY = {Condition.AGENT_READY: StoredCondition("True", Reason.LEASE_RENEWED, ALIVE.message, "then", 1)}
SILENT = {Condition.AGENT_READY: StoredCondition("Unknown", Reason.LEASE_EXPIRED, "silent", "then", 1)}


class TestWithoutAListing:
    """The API server does not give the Leases when they are first polled."""

    @pytest.mark.parametrize(
        ("reported", "state"),
        [
            pytest.param(LATELY, ALIVE, id="alive"),
            pytest.param(SILENT, AgentState("Unknown", Reason.LEASE_EXPIRED, "silent"), id="silent"),
            pytest.param(None, ALIVE, id="new"),
        ],
    )
    async def test_stored_states_hold(self, reported: Any, state: AgentState) -> None:
        made = Watched("node-a", reported=reported)
        # the other NodeDevice of the node has a state of its own
        nic = replace(node_device(NIC, node="node-a", uid="uid-of-nic"), conditions=LATELY)
        made.cluster.failures["list_leases"] = [refused()]
        async with running(made.monitor.work()):
            # numbers need not wait
            assert await made.queue.next() == "node-a"
            assert (made.monitor.has_listed, made.monitor.state("node-a")) == (True, state)
            [record] = made.cache.node_devices.values()
            assert made.monitor.state_for(record) == state
            made.cache.node_devices.put(nic)
            assert made.monitor.state_for(nic) == ALIVE

    async def test_it_is_tried_again_soon_or_when_the_api_server_asks_to(self) -> None:
        made = Watched("node-a", "node-b")
        made.cluster.failures["list_leases"] = [refused(), refused(7)]
        made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
        began = asyncio.get_running_loop().time()
        async with made.polling():
            assert asyncio.get_running_loop().time() - began == pytest.approx(8)
            # once to go on without, and once to go on with it
            assert sorted([await made.queue.next() for _ in range(4)]) == ["node-a", "node-a", "node-b", "node-b"]
            assert (made.monitor.state("node-a"), made.monitor.state("node-b")) == (ALIVE, MISSING)


async def test_the_state_that_another_operator_stored_since_the_last_poll_holds() -> None:
    made = Watched("node-a")
    async with made.polling():
        assert made.monitor.state("node-a") == MISSING
        [record] = made.cache.node_devices.values()
        newer = replace(record, resource_version=2, conditions={**record.conditions, **LATELY})
        made.cache.node_devices.put(newer)
        assert made.monitor.state("node-a") == made.monitor.state_for(newer) == ALIVE


async def test_nothing_is_polled_before_all_nodedevices_are_known() -> None:
    made = Watched("node-a")
    made.cache.synced.clear()
    async with running(made.monitor.work()):
        await asyncio.sleep(60)
        assert not made.monitor.has_listed
        made.cache.synced.set()
        await made.queue.next()
        assert made.monitor.has_listed


async def test_a_silent_agent_that_reports_is_polled_soon() -> None:
    made = Watched("node-a")
    made.cluster.leases = {"node-a": LeaseRecord("1", 5)}
    async with made.polling():
        await made.queue.next()
        assert await made.queue.next() == "node-a"
        assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED
        made.cluster.leases = {"node-a": LeaseRecord("2", 60)}
        made.monitor.on_update("node-a", None, made.cache.node_devices.values()[0])
        async with asyncio.timeout(1):
            assert await made.queue.next() == "node-a"
        assert made.monitor.state("node-a") is ALIVE


def at(version: int) -> dict[str, LeaseRecord]:
    return {"node-a": LeaseRecord(str(version), 60, version=version)}


async def test_two_api_servers_of_different_age_keep_no_agent_alive() -> None:
    made = Watched("node-a")
    made.cluster.leases = at(9)
    # one that lags behind for ever, and the other
    made.cluster.cached_leases = [at(9), at(5)] * 6
    async with made.polling():
        await asyncio.sleep(110)
        assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED
        made.cluster.leases = at(10)
        await asyncio.sleep(20)
        assert made.monitor.state("node-a") is ALIVE


async def test_agents_live_on_when_the_api_server_is_restored() -> None:
    made = Watched("node-a")
    made.cluster.leases = at(900)
    async with made.polling():
        for version in (100, 101, 102, 103):
            made.cluster.leases = at(version)
            await asyncio.sleep(25)
            assert made.monitor.state("node-a") is ALIVE
        # the list from the cache of an API server that is restarted after the others
        made.cluster.cached_leases, made.cluster.leases = [at(900)], at(104)
        await asyncio.sleep(50)
        assert made.monitor.state("node-a") is ALIVE
        await asyncio.sleep(50)
        assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED


async def test_a_refusal_of_an_agent_is_reported_once_on_its_node() -> None:
    made = Watched("node-a")
    made.cache.nodes.put(NodeRecord("node-a", "uid-of-node-a", 1, {}))
    made.cluster.leases["node-a"] = LeaseRecord("1", 60, ("long ago",))
    made.cluster.leases["node-b"] = LeaseRecord("1", 60, ("not there",))
    async with made.polling():
        assert made.posted == []
        made.cluster.leases["node-a"] = LeaseRecord("2", 60, ("long ago", "a name"))
        await made.next_poll()
        await made.next_poll()
        (reported,) = made.posted
        assert (reported.about.kind, reported.about.uid) == ("Node", "uid-of-node-a")
        assert reported.reason == "RegistrationRefused"
        assert reported.message == "a device plugin's registration was refused: a name"
        made.cluster.leases["node-a"] = LeaseRecord("3", 60)
        await made.next_poll()
        made.cluster.leases["node-a"] = LeaseRecord("4", 60, ("a name",))
        made.cache.nodes.put(NodeRecord("node-b", "uid-of-node-b", 1, {}))
        await made.next_poll()
    again = [(event.about.uid, event.message.split(": ")[1]) for event in made.posted[1:]]
    assert again == [("uid-of-node-a", "a name"), ("uid-of-node-b", "not there")]


def noted_polls(made: Watched) -> list[float]:
    """When the Leases are listed, from now on."""
    polls: list[float] = []
    made.monitor.on_poll = lambda _: polls.append(asyncio.get_running_loop().time())
    return polls


async def test_a_silent_agent_that_reports_without_end_brings_few_polls_forward() -> None:
    """Its token is enough for that, and each poll lists the Leases of all nodes."""
    made = Watched("node-a", "node-b")
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


async def test_many_that_are_silent_and_report_bring_few_polls_forward() -> None:
    made = Watched(*(f"node-{number}" for number in range(120)))
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
