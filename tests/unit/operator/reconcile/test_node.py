"""One look at a node: what is written when everything is known, and nothing when it is not."""

from dataclasses import replace

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.agents.liveness import LeaseBook
from nodedevice_operator.errors import (
    Conflict,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
)
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.lease import LeaseRecord
from nodedevice_operator.reconcile import node as node_work

from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.unit.operator.reconcile.look import Look, held, with_pod


async def test_capacity_then_conditions_and_then_silence(edges: Look) -> None:
    record = node_device(available=4)
    await edges.see(record)
    assert await edges.look() == [f"apply {{'{GPU}': 4}}", f"conditions {record.name}"]
    assert edges.cluster.node_devices[record.name].conditions[Condition.READY].status == "True"
    assert await edges.look() == []
    await edges.see()
    assert await edges.look() == []


async def test_in_a_crowd_capacity_comes_first_for_everybody(edges: Look) -> None:
    record = node_device(available=4)
    await edges.see(record)
    edges.crowd.append("node-b")
    assert await edges.work.look("node-a") == 0
    assert edges.cluster.writes == [f"apply {{'{GPU}': 4}}"]
    assert await edges.look() == [f"conditions {record.name}"]


@pytest.mark.parametrize("missing", ["nodes", "node_devices", "pod_devices"])
async def test_nothing_is_done_before_every_list_is_complete(edges: Look, missing: str) -> None:
    record = node_device(available=4)
    with_pod(edges)
    await edges.see(node_device(NIC, available=1, allocated=1, allocations=(held("a"),)), record)
    await edges.look()
    assert edges.cluster.node.seen(NIC).capacity == 2

    # the same cluster, seen by a process that has just started and got a part of each kind by its watch
    store = getattr(edges.cache, missing)
    partial = Cache()
    partial.nodes.put(edges.cluster.node_record())
    partial.node_devices.put(edges.cluster.node_devices[record.name])
    for pod_device in edges.cluster.pod_devices.values():
        partial.pod_devices.put(pod_device)
    for kind in ("nodes", "node_devices", "pod_devices"):
        getattr(partial, kind).is_complete = kind != missing
    assert store.is_complete
    edges.cache.nodes, edges.cache.node_devices = partial.nodes, partial.node_devices
    edges.cache.pod_devices = partial.pod_devices
    assert await edges.look() == []
    assert edges.cluster.node.seen(NIC).capacity == 2
    assert list(edges.cluster.pod_devices) == [("default", "pod-a")]


async def test_a_conflict_is_met_by_reading_the_node_again(edges: Look) -> None:
    await edges.see(node_device(available=4), node_device(NIC, available=1))
    # set after the list, and the watch has not brought it
    edges.cluster.node.update("kubelet", GPU, 9)
    assert (await edges.look())[0] == f"apply {{'{NIC}': 1}}"
    assert edges.cluster.node.seen(GPU).capacity == 9
    assert edges.recorder.reasons() == ["CapacityConflict"] * 2


async def test_a_node_that_keeps_refusing_is_tried_later(edges: Look) -> None:
    await edges.see(node_device(available=4))
    refusal = Conflict("patch", "nodes/status", "conflict", 409)
    edges.cluster.failures["apply_capacity"] = [refusal] * 5
    with pytest.raises(Conflict):
        await edges.look()
    assert (await edges.look())[0] == f"apply {{'{GPU}': 4}}"


async def test_a_failed_write_is_neither_told_nor_counted(edges: Look) -> None:
    await edges.see(node_device(available=4))
    await edges.look()
    edges.cluster.node.update("kubelet", GPU, 0)
    await edges.see()
    edges.cluster.failures["apply_capacity"] = [Unavailable("patch", "nodes/status", "later", 503)]
    with pytest.raises(Unavailable):
        await edges.look()
    assert edges.recorder.reasons() == []
    await edges.look()
    assert edges.recorder.reasons() == ["CapacityRepaired"] * 2


async def test_a_node_made_anew_meanwhile_is_not_written_as_the_old_one(edges: Look) -> None:
    await edges.see(node_device(available=4))
    edges.cluster.node.remake("uid-2")
    assert await edges.look() == []
    assert edges.cache.nodes.get("node-a") is not None
    assert not edges.cluster.node.seen(GPU).is_present


async def test_a_node_that_is_gone_meanwhile_is_no_failure(edges: Look) -> None:
    await edges.see(node_device(available=4))
    edges.cluster.failures["apply_capacity"] = [NotFound("patch", "nodes/status", "gone", 404)]
    assert await edges.look() == []


async def test_a_refusal_that_is_not_about_the_uid_is_raised(edges: Look) -> None:
    await edges.see(node_device(available=4))
    edges.cluster.failures["apply_capacity"] = [Invalid("patch", "nodes/status", "no", 422)]
    with pytest.raises(Invalid):
        await edges.look()


async def test_news_in_the_answer_to_our_own_write_is_not_lost(edges: Look) -> None:
    record = node_device(available=4)
    await edges.see(record)
    # the agent wrote in between; its own event comes later and is too old then
    stored = edges.cluster.node_devices[record.name]
    edges.cluster.node_devices[record.name] = replace(stored, available=2, resource_version=edges.cluster.version + 1)
    await edges.look()
    assert edges.news == [record.name]
    assert (await edges.look())[0] == f"apply {{'{GPU}': 2}}"


class TestWithoutItsNode:
    """A NodeDevice whose Node is another one, or none."""

    async def test_it_is_told_after_a_grace(self, edges: Look) -> None:
        record = node_device(available=4, owner_uid="uid-of-another")
        await edges.see(record)
        assert await edges.work.look("node-a") == node_work._NODE_MISSING_GRACE_SECONDS
        assert edges.cluster.writes == []
        edges.now[0] += node_work._NODE_MISSING_GRACE_SECONDS
        assert await edges.look() == [f"conditions {record.name}"]
        advertised = edges.cluster.node_devices[record.name].conditions[Condition.ADVERTISED]
        assert (advertised.status, advertised.reason) == ("False", Reason.NODE_MISSING)
        assert await edges.look() == []

    async def test_one_of_which_nobody_has_said_anything_is_told_too(self, edges: Look) -> None:
        record = node_device(owner_uid=None, has_status=False, endpoint=None, conditions={})
        edges.leases._book = LeaseBook()
        await edges.see(record)
        assert await edges.work.look("node-a") == node_work._NODE_MISSING_GRACE_SECONDS
        edges.now[0] += node_work._NODE_MISSING_GRACE_SECONDS
        assert await edges.look() == [f"conditions {record.name}"]
        ready = edges.cluster.node_devices[record.name].conditions[Condition.READY]
        assert (ready.status, ready.reason) == ("False", Reason.NODE_MISSING)


class TestWithoutItsAgent:
    """A NodeDevice that somebody made by hand."""

    async def test_numbers_of_others_reach_no_node_and_are_told_as_nothing(self, edges: Look) -> None:
        record = node_device(available=5, has_status=False, edited_by=frozenset({"kubectl-patch"}), conditions={})
        await edges.see(record)
        assert await edges.look() == [f"conditions {record.name}"]
        conditions = edges.cluster.node_devices[record.name].conditions
        assert [conditions[kind].status for kind in (Condition.ADVERTISED, Condition.READY)] == ["False", "False"]
        assert conditions[Condition.READY].reason == Reason.DEVICE_LIST_PENDING

    async def test_one_that_its_agent_has_just_made_is_not_told_of_yet(self, edges: Look) -> None:
        await edges.see(node_device(has_status=False, endpoint=None, conditions={}))
        assert await edges.look() == []

    async def test_what_was_told_of_one_goes_with_what_is_so(self, edges: Look) -> None:
        made = node_device(owner_uid=None, has_status=False, endpoint=None, conditions={})
        await edges.see(made)
        await edges.look()
        edges.now[0] += node_work._NODE_MISSING_GRACE_SECONDS
        await edges.look()
        await edges.see(replace(made, owner_uid="uid-1"))
        assert await edges.look() == [f"conditions {made.name}"]
        ready = edges.cluster.node_devices[made.name].conditions[Condition.READY]
        assert ready.reason == Reason.DEVICE_LIST_PENDING


class TestAgents:
    """Agents that are silent, and operators that were not leading."""

    async def test_nothing_is_done_before_the_leases_were_looked_at(self, edges: Look) -> None:
        await edges.see(node_device(available=4))
        edges.leases.has_looked = False
        assert await edges.look() == []
        edges.leases.has_looked = True
        assert await edges.look() != []

    async def test_a_withdrawal_and_its_end_are_one_write_each_to_the_node(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        edges.leases._book = LeaseBook(0).look(edges.cluster.leases, 0, frozenset({"node-a"}))
        edges.leases._clock = lambda: 61.0
        edges.leases._book = replace(edges.leases._book, looked_at=50.0)
        await edges.leases._look()
        assert await edges.look() == [f"apply {{'{GPU}': 0}}", f"conditions {record.name}"]
        assert edges.recorder.reasons() == [Reason.LEASE_EXPIRED, Reason.FREE_WITHDRAWN]
        edges.cluster.leases = {"node-a": LeaseRecord("later", 60)}
        await edges.leases._look()
        assert await edges.look() == [f"apply {{'{GPU}': 4}}", f"conditions {record.name}"]

    async def test_without_the_leases_numbers_go_on_and_no_agent_is_doubted(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        # as after a restart, where the first listing fails
        edges.leases._book = LeaseBook()
        edges.work.forget()
        assert await edges.look() == []
        await edges.see(node_device(available=3))
        assert await edges.look() == [f"apply {{'{GPU}': 3}}"]
        assert edges.recorder.reasons() == []

    async def test_who_begins_to_lead_after_another_writes_nothing_that_is_right(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(available=3, allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        told = edges.recorder.reasons()
        edges.work.forget()
        assert await edges.look() == []
        assert edges.recorder.reasons() == told

    async def test_a_write_that_was_not_sent_is_neither_told_nor_counted(self, edges: Look) -> None:
        await edges.see(node_device(available=4))
        edges.cluster.failures["apply_capacity"] = [NotLeading("PATCH", "nodes/status", "over")]
        with pytest.raises(NotLeading):
            await edges.look()
        assert edges.recorder.reasons() == []
        assert (await edges.look())[0] == f"apply {{'{GPU}': 4}}"
