"""What is reported while the API server refuses a write: everything that the refusal is not about."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import ApiError, Denied, Forbidden, Invalid, Unavailable
from nodedevice_operator.capacity.ownership import LOST_GRACE_SECONDS
from nodedevice_operator.contention import FIRST_BACKOFF_SECONDS
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import StoredCondition

from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.unit.operator.objects.records import held
from tests.unit.operator.reconcile.bench import Bench, with_pod


class TestRejectedWrites:
    """A Node, or a NodeDevice, that the API server will not have written: all the rest goes on."""

    async def test_a_dead_agent_is_reported_although_its_node_is_frozen(self, bench: Bench) -> None:
        record = node_device(available=4)
        await bench.settle(record)
        before = bench.condition(record, Condition.ADVERTISED)
        await bench.see(node_device(available=1))
        await bench.silence_agent()
        await rejected_reconcile(bench, times=2)
        for kind in (Condition.AGENT_READY, Condition.READY):
            assert bench.condition(record, kind).reason == Reason.LEASE_EXPIRED
        assert bench.recorder.reasons() == [Reason.LEASE_EXPIRED]
        # what the next reconcile may settle is no news
        assert bench.condition(record, Condition.ADVERTISED) == before

    async def test_what_the_node_does_not_show_is_reported_until_it_does(self, bench: Bench) -> None:
        gpu, nic = node_device(available=4), node_device(NIC, available=1)
        await bench.settle(gpu, nic)
        await bench.see(node_device(available=1))
        await rejected_reconcile(bench, times=3)
        advertised = bench.condition(gpu, Condition.ADVERTISED)
        assert (advertised.status, advertised.reason) == ("False", Reason.UPDATE_REFUSED)
        assert advertised.message.endswith("retried: this Node is frozen")
        assert bench.condition(gpu, Condition.READY).reason == Reason.UPDATE_REFUSED
        shown = (Condition.ADVERTISED, Condition.READY)
        assert [bench.condition(nic, kind).status for kind in shown] == ["True", "True"]
        # reported once, and no more of it is written
        assert await rejected_reconcile(bench) == []
        assert await bench.reconcile() == [f"apply {{'{GPU}': 1, '{NIC}': 1}}", f"conditions {gpu.name}"]
        assert [bench.condition(gpu, kind).status for kind in shown] == ["True", "True"]

    async def test_a_name_that_never_was_there_is_reported_so(self, bench: Bench) -> None:
        record = node_device(available=4)
        await bench.see(record)
        assert await rejected_reconcile(bench, times=2) == []
        assert await rejected_reconcile(bench) == [f"conditions {record.name}"]
        assert bench.condition(record, Condition.ADVERTISED).reason == Reason.WRITE_REFUSED
        assert bench.condition(record, Condition.AGENT_READY).status == "True"

    async def test_failures_that_are_not_in_a_row_are_not_reported(self, bench: Bench) -> None:
        record = node_device(available=1)
        await bench.settle(record)
        before = bench.cluster.node_devices[record.name].conditions
        for number in (2, 3, 4):
            await bench.see(node_device(available=number))
            await rejected_reconcile(bench, times=2)
            assert await bench.reconcile() == [f"apply {{'{GPU}': {number}}}"]
        assert bench.cluster.node_devices[record.name].conditions == before

    async def test_its_pods_are_reported_with_their_devices(self, bench: Bench) -> None:
        with_pod(bench)
        await bench.settle(node_device(available=4))
        await bench.see(node_device(available=1, allocated=1, allocations=(held("gpu-0"),)))
        assert "poddevice pod-a gpu-0" in await rejected_reconcile(bench)

    async def test_after_a_restart_a_name_is_still_ours(self, bench: Bench) -> None:
        await bench.settle(node_device(available=4))
        await bench.see(node_device(available=1))
        await rejected_reconcile(bench, times=3)
        bench.cluster.node.update("kubelet", GPU, 0)
        bench.restart()
        await bench.see()
        assert (await bench.reconcile())[0] == f"force {{'{GPU}': 1}}"
        assert bench.recorder.reasons() == ["CapacityRepaired"] * 2

    @pytest.mark.parametrize("error", [Unavailable("PATCH", "x", "later", 503), Forbidden("PATCH", "x", "no", 401)])
    async def test_nothing_else_is_asked_of_an_api_server_that_is_away(self, bench: Bench, error: ApiError) -> None:
        record = node_device(available=4)
        await bench.settle(record)
        await bench.see(node_device(available=1))
        await bench.silence_agent()
        bench.cluster.failures["apply_capacity"] = [error]
        with pytest.raises(type(error)):
            await bench.reconcile()
        assert bench.condition(record, Condition.AGENT_READY).status == "True"

    async def test_words_that_are_others_each_time_are_written_once(self, bench: Bench) -> None:
        record = node_device(available=4)
        await bench.settle(record)
        await bench.see(node_device(available=1))
        problem = "failed calling webhook: read tcp {}: connection reset by peer"
        for port in range(40001, 40004):
            await rejected_reconcile(bench, problem.format(f"10.0.0.5:{port}"))
        assert await rejected_reconcile(bench, problem.format("10.0.0.6:9")) == []
        message = bench.condition(record, Condition.ADVERTISED).message
        assert message.endswith("10.0.0.5:40003: connection reset by peer")
        assert await rejected_reconcile(bench, "this Node is frozen") == [f"conditions {record.name}"]
        assert bench.condition(record, Condition.ADVERTISED).message.endswith("retried: this Node is frozen")

    async def test_the_name_of_a_node_before_is_no_claim_on_this_one(self, bench: Bench) -> None:
        record = node_device(available=4)
        before = StoredCondition("True", Reason.ADVERTISED, "", "2020-01-01T00:00:00Z", 1)
        bench.cluster.node.made = "2021-01-01T00:00:00Z"
        await bench.see(replace(record, conditions={**record.conditions, Condition.ADVERTISED: before}))
        await rejected_reconcile(bench, times=3)
        assert bench.condition(record, Condition.ADVERTISED).reason == Reason.WRITE_REFUSED
        bench.cluster.node.update("another-operator", GPU, 9)
        bench.restart()
        await bench.see()
        assert await bench.reconcile() == [f"conditions {record.name}"]
        assert bench.recorder.reasons() == ["CapacityConflict"] * 2
        assert bench.cluster.node.seen(GPU).capacity == 9

    async def test_a_nodedevice_that_takes_no_conditions_has_neighbours(self, bench: Bench) -> None:
        first, last = node_device(NIC, available=1), node_device(available=4)
        await bench.see(first, last)
        order = [record.name for record in bench.cache.node_devices.of_node("node-a")]
        bench.cluster.failures["apply_conditions"] = [Invalid("patch", "nodedevices/status", "Too many: 36", 422)]
        with pytest.raises(Invalid, match="Too many"):
            await bench.reconcile()
        assert [name for name in order if f"conditions {name}" in bench.cluster.writes] == order[1:]
        assert await bench.reconcile() == [f"conditions {order[0]}"]

    async def test_what_is_due_at_a_time_waits_for_no_conditions(self, bench: Bench) -> None:
        lost = node_device(NIC, available=1)
        await bench.settle(node_device(available=4), lost)
        del bench.cluster.node_devices[lost.name]
        await bench.see(node_device(available=4, generation=2))
        bench.cluster.failures["apply_conditions"] = [Invalid("patch", "nodedevices/status", "Too many: 36", 422)]
        with pytest.raises(Invalid):
            await bench.reconcile()
        assert bench.queue.later == [LOST_GRACE_SECONDS]


class TestConflicts:
    """Names that others hold on a Node that the API server will not have written."""

    async def test_a_conflict_is_reported_once_and_a_repair_when_it_is_made(self, bench: Bench) -> None:
        await bench.settle(node_device(available=4))
        bench.cluster.node.update("kubelet", GPU, 0)
        bench.cluster.node.update("another-operator", NIC, 9)
        await bench.see(node_device(NIC, available=1))
        await rejected_reconcile(bench, times=2)
        assert bench.recorder.reasons() == []
        await rejected_reconcile(bench, times=2)
        assert bench.recorder.reasons() == ["CapacityConflict"] * 2
        assert await bench.reconcile() == [f"force {{'{GPU}': 4}}", f"conditions {node_device().name}"]
        assert bench.recorder.reasons() == ["CapacityConflict"] * 2 + ["CapacityRepaired"] * 2

    async def test_whoever_is_at_odds_with_us_stays_known_and_the_pause_ends(self, bench: Bench) -> None:
        record = node_device(available=4)
        await bench.settle(record)
        for number in (9, 8):
            bench.cluster.node.update("rogue", GPU, number)
            await bench.settle()
        bench.cluster.node.update("rogue", GPU, 7)
        await bench.see(node_device(NIC, available=1))
        await rejected_reconcile(bench, times=5)
        conflict = bench.condition(record, Condition.CONFLICT)
        assert (conflict.reason, conflict.message.split()[0]) == (Reason.CHANGED_REPEATEDLY, "rogue")
        assert bench.recorder.reasons()[4:] == ["CapacityConflict"] * 2
        bench.now[0] += FIRST_BACKOFF_SECONDS
        assert (await bench.reconcile())[0] == f"force {{'{GPU}': 4}}"

    async def test_a_contest_counts_refused_rounds(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        await bench.settle(node_device(available=4))
        await bench.see(node_device(NIC, available=1))
        apply = bench.cluster.apply_capacity

        async def with_no_new_name(node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
            if NIC in numbers:
                raise Denied("PATCH", "nodes/status", "no more names", 403)
            return await apply(node, numbers, force=force)

        monkeypatch.setattr(bench.cluster, "apply_capacity", with_no_new_name)
        for number in (9, 8, 7):
            bench.cluster.node.update("rogue", GPU, number)
            await bench.see()
            with pytest.raises(Denied):
                await bench.reconcile()
        assert bench.recorder.reasons() == ["CapacityRepaired"] * 4 + ["CapacityConflict"] * 2


async def rejected_reconcile(bench: Bench, problem: str = "this Node is frozen", times: int = 1) -> list[str]:
    """Reconcile so often while the Node cannot be written; what was written."""
    first = len(bench.cluster.writes)
    bench.cluster.failures["apply_capacity"] = [Denied("PATCH", "nodes/status", problem, 403)] * times
    for _ in range(times):
        with pytest.raises(Denied):
            await bench.reconcile()
    return bench.cluster.writes[first:]
