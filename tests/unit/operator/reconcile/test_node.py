"""One reconcile at a node: what is written when everything is known, and nothing when it is not."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import ApiError, Conflict, Invalid, NotFound, NotLeading, Unavailable
from nodedevice_operator.informers.memory_bounds import MOST_OF_NODE
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.observability.events import EventReason
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.reconcile.condition_reconciler import NODE_MISSING_GRACE_SECONDS
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import running
from tests.fakes.operator.operator_model import GPU, NIC, node_device, not_configured
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.bench import Bench, new_bench, with_pod
from tests.unit.operator.reconciles import Reconciles


async def test_capacity_then_conditions_and_then_silence(bench: Bench) -> None:
    record = node_device(available=4)
    await bench.see(record)
    assert await bench.reconcile() == [f"apply {{'{GPU}': 4}}", f"conditions {record.name}"]
    # the answers to its own writes are no news
    assert (bench.updated, bench.condition(record, Condition.READY).status) == ([], "True")
    assert await bench.reconcile() == []
    await bench.see()
    assert await bench.reconcile() == []


async def test_one_that_its_agent_has_just_created_keeps_no_other_from_its_conditions(bench: Bench) -> None:
    new, known = node_device(GPU, has_status=False, conditions={}), node_device(NIC, available=2)
    await bench.see(new, known)
    written = [each for each in await bench.reconcile() if each.startswith("conditions")]
    assert written == [f"conditions {known.name}"]


async def test_whoever_waits_for_a_reconcile_sees_what_it_has_written(bench: Bench) -> None:
    """What is over is deleted then: its capacity was withdrawn, and its conditions say so."""
    seen: list[tuple[str, list[bool]]] = []

    def done(node: str) -> None:
        seen.append((node, [record.is_over for record in bench.cache.node_devices.of_node(node)]))

    bench.reconciler.on_done = done
    await bench.settle(not_configured(is_withdrawn=False))
    assert seen == [("node-a", [True])]


async def test_in_a_crowd_capacity_comes_first_for_everybody(bench: Bench) -> None:
    record = node_device(available=4)
    await bench.see(record)
    bench.queue.crowd = True
    assert await bench.reconciler.reconcile("node-a") == 0
    assert bench.cluster.writes == [f"apply {{'{GPU}': 4}}"]
    assert await bench.reconcile() == [f"conditions {record.name}"]
    # where it is known and has changed, as well as where it is new
    await bench.see(node_device(available=3))
    assert await bench.reconciler.reconcile("node-a") == 0


@pytest.mark.parametrize("missing", ["nodes", "node_devices", "pod_devices"])
async def test_nothing_is_done_before_every_list_is_complete(bench: Bench, missing: str) -> None:
    record = node_device(available=4)
    with_pod(bench)
    await bench.settle(node_device(NIC, available=1, allocated=1, allocations=(held("a"),)), record)
    assert bench.cluster.node.seen(NIC).capacity == 2

    # the same cluster, seen by a process that has just started and got a part of each kind by its watch
    partial = Cache()
    partial.nodes.put(bench.cluster.node_record())
    partial.node_devices.put(bench.cluster.node_devices[record.name])
    for pod_device in bench.cluster.pod_devices.values():
        partial.pod_devices.put(pod_device)
    for kind in ("nodes", "node_devices", "pod_devices"):
        getattr(partial, kind).is_complete = kind != missing
    bench.cache.nodes, bench.cache.node_devices = partial.nodes, partial.node_devices
    bench.cache.pod_devices, bench.cache.stores = partial.pod_devices, partial.stores
    assert await bench.reconcile() == []
    assert bench.cluster.node.seen(NIC).capacity == 2
    assert list(bench.cluster.pod_devices) == [("default", "pod-a")]


async def test_a_conflict_is_met_by_reading_the_node_again(bench: Bench) -> None:
    await bench.see(node_device(available=4), node_device(NIC, available=1))
    # set after the list, and the watch has not brought it
    bench.cluster.node.update("kubelet", GPU, 9)
    assert (await bench.reconcile())[0] == f"apply {{'{NIC}': 1}}"
    assert (bench.cluster.node.seen(GPU).capacity, bench.recorder.reasons()) == (9, ["CapacityConflict"] * 2)


async def test_a_contradiction_is_reported_once_until_it_is_another(bench: Bench) -> None:
    for allocations in [(held("gpu-7"),)] * 2 + [(held("gpu-8"),)]:
        await bench.settle(node_device(listed=("gpu-0",), allocated=1, allocations=allocations))
    assert bench.recorder.reasons() == ["StatusContradictsItself"] * 2


async def test_a_node_that_keeps_refusing_is_tried_later(bench: Bench) -> None:
    await bench.see(node_device(available=4))
    refusal = Conflict("patch", "nodes/status", "conflict", 409)
    bench.cluster.failures["apply_capacity"] = [refusal] * 5
    with pytest.raises(Conflict):
        await bench.reconcile()
    assert (await bench.reconcile())[0] == f"apply {{'{GPU}': 4}}"


@pytest.mark.parametrize(
    "failure",
    [Unavailable("PATCH", "nodes/status", "later", 503), NotLeading("PATCH", "nodes/status", "over")],
    ids=["failed", "not sent"],
)
async def test_a_failed_write_is_neither_reported_nor_counted(bench: Bench, failure: ApiError) -> None:
    await bench.settle(node_device(available=4))
    bench.cluster.node.update("kubelet", GPU, 0)
    await bench.see()
    bench.cluster.failures["apply_capacity"] = [failure]
    with pytest.raises(type(failure)):
        await bench.reconcile()
    assert bench.recorder.reasons() == []
    await bench.reconcile()
    assert bench.recorder.reasons() == ["CapacityRepaired"] * 2


async def test_a_node_made_again_meanwhile_is_not_written_as_the_old_one(bench: Bench) -> None:
    await bench.see(node_device(available=4))
    bench.cluster.node.remake("uid-2")
    assert await bench.reconcile() == []
    assert bench.cache.nodes.get("node-a") is not None
    assert not bench.cluster.node.seen(GPU).is_present


async def test_a_node_that_is_gone_meanwhile_is_no_failure(bench: Bench) -> None:
    await bench.see(node_device(available=4))
    bench.cluster.failures["apply_capacity"] = [NotFound("patch", "nodes/status", "gone", 404)]
    assert await bench.reconcile() == []


async def test_news_in_the_answer_to_our_own_write_is_not_lost(bench: Bench) -> None:
    record = node_device(available=4)
    await bench.see(record)
    # the agent wrote in between; its own event comes later and is too old then
    stored = bench.cluster.node_devices[record.name]
    bench.cluster.node_devices[record.name] = replace(stored, available=2, resource_version=bench.cluster.version + 1)
    await bench.reconcile()
    assert bench.updated == [record.name]
    assert (await bench.reconcile())[0] == f"apply {{'{GPU}': 2}}"


@pytest.mark.parametrize(
    ("fields", "is_polled", "ready"),
    [
        ({"available": 4, "owner_uid": "uid-of-another"}, True, "Ready"),
        ({"owner_uid": None, "has_status": False, "endpoint": None, "conditions": {}}, False, "DeviceListPending"),
    ],
    ids=["of another Node", "nothing reported"],
)
async def test_one_without_its_node_is_reported_after_a_grace_while_it_is_so(
    fields: dict[str, Any], is_polled: bool, ready: str
) -> None:
    record = node_device(**fields)
    bench = await new_bench(is_polled=is_polled)
    await bench.see(record)
    assert await bench.reconciler.reconcile("node-a") == NODE_MISSING_GRACE_SECONDS
    assert bench.cluster.writes == []
    bench.now[0] += NODE_MISSING_GRACE_SECONDS
    assert await bench.reconcile() == [f"conditions {record.name}"]
    for kind in (Condition.ADVERTISED, Condition.READY):
        shown = bench.condition(record, kind)
        assert (shown.status, shown.reason) == ("False", Reason.NODE_MISSING)
    assert await bench.reconcile() == []
    await bench.settle(replace(record, owner_uid="uid-1"))
    assert bench.condition(record, Condition.READY).reason == ready


async def test_numbers_of_others_than_an_agent_reach_no_node_and_are_reported_as_nothing(bench: Bench) -> None:
    record = node_device(available=5, has_status=False, edited_by=frozenset({"kubectl-patch"}), conditions={})
    await bench.see(record)
    assert await bench.reconcile() == [f"conditions {record.name}"]
    advertised, ready = (bench.condition(record, kind) for kind in (Condition.ADVERTISED, Condition.READY))
    assert (advertised.status, ready.status, ready.reason) == ("False", "False", Reason.DEVICE_LIST_PENDING)


class TestAgents:
    """Agents that are silent, and operators that were not leading."""

    async def test_nothing_is_done_before_the_leases_were_listed_at(self, bench: Bench) -> None:
        await bench.see(node_device(available=4))
        bench.agents.has_listed = False
        assert await bench.reconcile() == []
        bench.agents.has_listed = True
        assert await bench.reconcile() != []

    async def test_without_the_leases_numbers_go_on_and_no_agent_is_doubted(self) -> None:
        bench = await new_bench(is_polled=False)
        await bench.settle(node_device(available=4))
        bench.restart()
        assert await bench.reconcile() == []
        await bench.see(node_device(available=3))
        assert await bench.reconcile() == [f"apply {{'{GPU}': 3}}"]
        assert bench.recorder.reasons() == []


async def test_more_node_devices_than_count_are_reported_once(bench: Bench) -> None:
    records = [node_device(f"example.com/r{number}", available=1) for number in range(MOST_OF_NODE + 3)]
    await bench.settle(*records)
    assert bench.recorder.reasons() == [EventReason.TOO_MANY_NODE_DEVICES]
    [event] = bench.recorder.posted
    assert event.message.startswith(f"node node-a has {MOST_OF_NODE + 3} NodeDevices")
    assert (event.about.kind, event.about.name, event.type, event.is_ongoing) == ("Node", "node-a", "Warning", True)
    assert len([write for write in bench.cluster.writes if write.startswith("conditions")]) == MOST_OF_NODE
    await bench.reconcile()
    assert len(bench.recorder.posted) == 1
    # once they are gone it would be news again
    for record in records[MOST_OF_NODE - 1 :]:
        bench.cluster.node_devices.pop(record.name)
        bench.cache.node_devices.remove(record.name, record.uid)
    await bench.settle()
    assert len(bench.recorder.posted) == 1
    await bench.settle(*(replace(record, uid=f"{record.uid}-again") for record in records[MOST_OF_NODE - 1 :]))
    assert len(bench.recorder.posted) == 2


class TestATakeover:
    """A lapse in which nobody else wrote costs nothing; after another operator every node is reconciled."""

    @pytest.fixture
    async def reconciled(self, bench: Bench) -> AsyncIterator[Reconciles]:
        """The nodes that a worker of the queue reconciles; the fence is closed."""
        bench.fence.close()
        bench.reconciler.queue, reconciles = WorkQueue(Metrics(), bench.fence), Reconciles()
        async with running(bench.reconciler.queue.work(reconciles)):
            yield reconciles

    @pytest.mark.parametrize(
        ("another_wrote", "nodes"),
        [(False, ["node-b"]), (True, ["node-a"])],
        ids=["no node without a change", "every node"],
    )
    async def test_takeover(self, bench: Bench, reconciled: Reconciles, another_wrote: bool, nodes: list[str]) -> None:
        await bench.see(node_device(available=4))
        bench.reconciler.queue.enqueue("node-b")
        await asyncio.sleep(0)
        assert reconciled.seen == []
        bench.fence.open_for_good()
        bench.reconciler.take_over(another_wrote=another_wrote, nobody_since=math.inf)
        await reconciled.until(1)
        assert reconciled.seen == nodes

    async def test_a_standby_forgets_a_node_that_nobody_knows(self, bench: Bench, reconciled: Reconciles) -> None:
        await bench.see(node_device(available=4))
        for node in ("node-gone", "node-a"):
            bench.reconciler.queue.enqueue(node)
            bench.reconciler.changed(node)
        bench.fence.open_for_good()
        bench.reconciler.take_over(another_wrote=False, nobody_since=0.0)
        await reconciled.until(1)
        assert reconciled.seen == ["node-a"]

    async def test_capacity_comes_first_for_all_nodes_where_it_is_right_too(self, bench: Bench) -> None:
        """PodDevices and conditions of the first thousand would keep the capacity of the others waiting."""
        with_pod(bench)
        await bench.settle(node_device(available=4))
        await bench.see(node_device(available=3, allocated=1, allocations=(held("gpu-0"),)))
        bench.restart()
        bench.queue.crowd = True
        before = list(bench.cluster.writes)
        assert await bench.reconciler.reconcile("node-a") == 0
        assert bench.cluster.writes == before
        assert [write.split()[0] for write in await bench.reconcile()] == ["poddevice"]

    async def test_a_failed_write_of_capacity_is_retried_as_such(self, bench: Bench) -> None:
        """Deferred without an error it would be tried for ever, without a pause."""
        await bench.see(node_device(available=4))
        bench.queue.crowd = True
        bench.cluster.failures["apply_capacity"] = [Invalid("PATCH", "nodes/status", "no", 422)] * 3
        with pytest.raises(Invalid):
            await bench.reconciler.reconcile("node-a")

    async def test_who_leads_reconciles_a_node_that_is_gone(self, bench: Bench) -> None:
        bench.reconciler.changed("node-gone")
        assert await bench.queue.next() == "node-gone"
