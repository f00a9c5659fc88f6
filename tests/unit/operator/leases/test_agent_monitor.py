"""Polls of the Leases: which nodes are enqueued, what is counted, and what is reported of many at once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import Unavailable
from nodedevice_operator.leases.agent_liveness import ALIVE, MISSING, AgentState
from nodedevice_operator.objects import nodedevice as records
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.collaborators import running
from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.leases.watched import Watched


async def test_a_node_whose_agent_comes_or_goes_is_enqueued(watched: Callable[..., Watched]) -> None:
    made = watched("node-a", "node-b")
    made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
    await made.monitor._poll()
    assert {await made.queue.next(), await made.queue.next()} == {"node-a", "node-b"}
    assert (made.monitor.state("node-a"), made.monitor.state("node-b")) == (ALIVE, MISSING)
    assert (made.agents("alive"), made.agents("missing")) == (1, 1)
    made.cluster.leases["node-b"] = LeaseRecord("1", 60)
    made.cluster.leases["node-of-nobody"] = LeaseRecord("1", 60)
    await made.monitor._poll()
    assert await made.queue.next() == "node-b"
    assert made.queue.is_empty
    assert made.agents("alive") == 2


def refused(seconds: float = 0.0) -> Unavailable:
    return Unavailable("get", "leases", "later", 429, retry_after_seconds=seconds)


@virtual_time
async def test_a_failed_poll_changes_nothing(watched: Callable[..., Watched]) -> None:
    made = watched("node-a")
    made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
    async with running(made.monitor.work()):
        assert await made.queue.next() == "node-a"
        made.cluster.failures["list_leases"] = [refused()] * 3
        made.cluster.leases["node-b"] = LeaseRecord("1", 60)
        made.cache.node_devices.put(node_device(node="node-b", uid="uid-of-node-b"))
        assert await made.queue.next() == "node-b"
        assert made.cluster.failures["list_leases"] == []
    assert made.monitor.state("node-a") is ALIVE
    assert made.queue.is_empty


LATELY = {Condition.AGENT_READY: records.StoredCondition("True", Reason.LEASE_RENEWED, ALIVE.message, "then", 1)}
SILENT = {Condition.AGENT_READY: records.StoredCondition("Unknown", Reason.LEASE_EXPIRED, "silent", "then", 1)}


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
    @virtual_time
    async def test_what_is_stored_holds(
        self, watched: Callable[..., Watched], reported: Any, state: AgentState
    ) -> None:
        made = watched("node-a", reported=reported)
        made.cluster.failures["list_leases"] = [refused()]
        async with running(made.monitor.work()):
            # numbers need not wait
            assert await made.queue.next() == "node-a"
            assert made.monitor.has_listed
            assert made.monitor.state("node-a") == state
            for record in made.cache.node_devices.values():
                assert made.monitor.state_for(record) == state

    async def test_each_nodedevice_has_its_own_word_kept(self, watched: Callable[..., Watched]) -> None:
        made = watched("node-a", reported=LATELY)
        record = node_device(NIC, node="node-a", uid="uid-of-nic")
        made.cache.node_devices.put(replace(record, conditions=SILENT))
        states = {record.resource: made.monitor.state_for(record).reason for record in made.cache.node_devices.values()}
        assert states == {GPU: Reason.LEASE_RENEWED, NIC: Reason.LEASE_EXPIRED}

    @virtual_time
    async def test_it_is_tried_again_and_then_counts(self, watched: Callable[..., Watched]) -> None:
        made = watched("node-a", "node-b")
        made.cluster.failures["list_leases"] = [refused()] * 3
        made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
        async with running(made.monitor.work()):
            # once to go on without, and once to go on with it
            enqueued = [await made.queue.next() for _ in range(4)]
        assert sorted(enqueued) == ["node-a", "node-a", "node-b", "node-b"]
        assert made.cluster.failures["list_leases"] == []
        assert (made.monitor.state("node-a"), made.monitor.state("node-b")) == (ALIVE, MISSING)

    def test_it_is_tried_again_soon_or_when_the_api_server_asks_to(self, watched: Callable[..., Watched]) -> None:
        monitor = watched("node-a").monitor
        assert [monitor._retry_seconds(each) for each in (refused(), refused(7))] == [1, 7]


async def test_what_another_operator_found_since_the_last_poll_holds(watched: Callable[..., Watched]) -> None:
    made = watched("node-a")
    await made.monitor._poll()
    assert made.monitor.state("node-a") == MISSING
    [record] = made.cache.node_devices.values()
    newer = replace(record, resource_version=2, conditions={**record.conditions, **LATELY})
    made.cache.node_devices.put(newer)
    assert made.monitor.state("node-a") == made.monitor.state_for(newer) == ALIVE


async def test_nodes_without_nodedevices_are_enqueued_at_the_first_poll(watched: Callable[..., Watched]) -> None:
    made = watched()
    made.cache.nodes.put(NodeRecord("node-z", "uid-z", 1, {}))
    await made.monitor._poll()
    assert await made.queue.next() == "node-z"


@virtual_time
async def test_nothing_is_polled_before_all_nodedevices_are_known(watched: Callable[..., Watched]) -> None:
    made = watched("node-a")
    made.cache.synced.clear()
    async with running(made.monitor.work()):
        await asyncio.sleep(60)
        assert not made.monitor.has_listed
        made.cache.synced.set()
        await made.queue.next()
        assert made.monitor.has_listed


@virtual_time
async def test_a_new_node_without_a_lease_is_polled_soon(watched: Callable[..., Watched]) -> None:
    made = watched("node-a")
    async with running(made.monitor.work()):
        await made.queue.next()
        assert made.monitor.state("node-a") == MISSING
        made.cluster.leases = {"node-a": LeaseRecord("1", 60)}
        async with asyncio.timeout(1):
            assert await made.queue.next() == "node-a"
        assert made.monitor.state("node-a") is ALIVE


@virtual_time
async def test_a_silent_agent_that_reports_is_polled_soon(watched: Callable[..., Watched], time: list[float]) -> None:
    made = watched("node-a")
    made.cluster.leases = {"node-a": LeaseRecord("1", 5)}
    async with running(made.monitor.work()):
        await made.queue.next()
        time[0] += 6
        await made.monitor._poll()
        assert await made.queue.next() == "node-a"
        assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED
        made.cluster.leases = {"node-a": LeaseRecord("2", 60)}
        made.monitor.on_update("node-a", None, made.cache.node_devices.values()[0])
        async with asyncio.timeout(1):
            assert await made.queue.next() == "node-a"
        assert made.monitor.state("node-a") is ALIVE


def at(version: int, renewed: str | None = None) -> dict[str, LeaseRecord]:
    return {"node-a": LeaseRecord(renewed or str(version), 60, version=version)}


async def test_two_api_servers_of_different_age_keep_no_agent_alive(
    watched: Callable[..., Watched], time: list[float]
) -> None:
    made = watched("node-a")
    made.cluster.leases = at(9)
    # one that lags behind for ever, and the other
    made.cluster.cached_leases = [at(9), at(5)] * 6
    for _ in range(12):
        await made.monitor._poll()
        time[0] += 10
    assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED
    made.cluster.leases = at(10)
    await made.monitor._poll()
    assert made.monitor.state("node-a") is ALIVE


async def test_agents_live_on_when_the_api_server_is_restored(
    watched: Callable[..., Watched], time: list[float]
) -> None:
    made = watched("node-a")
    made.cluster.leases = at(900)
    await made.monitor._poll()
    for version in (100, 101, 102, 103):
        time[0] += 25
        made.cluster.leases = at(version)
        await made.monitor._poll()
        assert made.monitor.state("node-a") is ALIVE
    # the list from the cache of an API server that is restarted after the others
    time[0] += 25
    made.cluster.cached_leases, made.cluster.leases = [at(900)], at(104)
    await made.monitor._poll()
    time[0] += 25
    await made.monitor._poll()
    assert made.monitor.state("node-a") is ALIVE
    for _ in range(3):
        time[0] += 25
        await made.monitor._poll()
    assert made.monitor.state("node-a").reason == Reason.LEASE_EXPIRED


async def test_an_outage_is_reported_once_and_so_is_its_end(watched: Callable[..., Watched], time: list[float]) -> None:
    nodes = [f"node-{number}" for number in range(10)]
    made = watched(*nodes)
    made.cluster.leases = {name: LeaseRecord("1", 5) for name in nodes}
    await made.monitor._poll()
    for _ in range(3):
        time[0] += 6
        made.cluster.leases.update({name: LeaseRecord(str(time[0]), 5) for name in nodes[3:]})
        await made.monitor._poll()
    assert made.monitor.state("node-0").reason == Reason.LEASES_EXPIRED_TOGETHER
    assert [event.reason for event in made.posted] == ["ManyAgentLeasesExpired"]
    assert "3 of 10 agents" in made.posted[0].message
    assert made.agents("silent") == 3
    made.cluster.leases["node-0"] = LeaseRecord("back", 60)
    await made.monitor._poll()
    assert [event.reason for event in made.posted] == ["ManyAgentLeasesExpired", "ManyAgentLeasesExpiredEnded"]
    # two of ten are no more than a fifth: each for itself
    assert made.monitor.state("node-1").reason == Reason.LEASE_EXPIRED


@pytest.mark.parametrize(
    ("advertised", "is_withdrawn"), [(Reason.FREE_WITHDRAWN, True), (Reason.ADVERTISED, False), (None, False)]
)
async def test_a_silence_that_is_reported_already_goes_on_after_a_restart(
    watched: Callable[..., Watched], advertised: Any, is_withdrawn: bool
) -> None:
    reported = {Condition.AGENT_READY: records.StoredCondition("Unknown", Reason.LEASE_EXPIRED, "", "then", 1)}
    if advertised:
        reported[Condition.ADVERTISED] = records.StoredCondition("True", advertised, "", "then", 1)
    made = watched("node-a", reported=reported)
    made.cluster.leases = {"node-a": LeaseRecord("then", 60)}
    await made.monitor._poll()
    state = made.monitor.state("node-a")
    assert (state.reason, state.is_withdrawn) == (Reason.LEASE_EXPIRED, is_withdrawn)
    made.cluster.leases = {"node-a": LeaseRecord("now", 60)}
    await made.monitor._poll()
    assert made.monitor.state("node-a") is ALIVE


async def test_what_an_agent_refused_is_reported_once_on_its_node(watched: Callable[..., Watched]) -> None:
    made = watched("node-a")
    made.cache.nodes.put(NodeRecord("node-a", "uid-of-node-a", 1, {}))
    made.cluster.leases["node-a"] = LeaseRecord("1", 60, ("long ago",))
    made.cluster.leases["node-b"] = LeaseRecord("1", 60, ("not there",))
    await made.monitor._poll()
    assert made.posted == []
    made.cluster.leases["node-a"] = LeaseRecord("2", 60, ("long ago", "a name"))
    await made.monitor._poll()
    await made.monitor._poll()
    (reported,) = made.posted
    assert (reported.about.kind, reported.about.uid) == ("Node", "uid-of-node-a")
    assert reported.reason == "RegistrationRefused"
    assert reported.message == "a device plugin's registration was refused: a name"
    made.cluster.leases["node-a"] = LeaseRecord("3", 60)
    await made.monitor._poll()
    made.cluster.leases["node-a"] = LeaseRecord("4", 60, ("a name",))
    made.cache.nodes.put(NodeRecord("node-b", "uid-of-node-b", 1, {}))
    await made.monitor._poll()
    assert [(event.about.uid, event.message.split(": ")[1]) for event in made.posted[1:]] == [
        ("uid-of-node-a", "a name"),
        ("uid-of-node-b", "not there"),
    ]
