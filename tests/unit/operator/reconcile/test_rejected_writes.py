"""What is told while the API server refuses a write: everything that the refusal is not about."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.agents.liveness import LeaseBook
from nodedevice_operator.capacity.history import FIRST_RETREAT_SECONDS, LOST_GRACE_SECONDS
from nodedevice_operator.errors import (
    ApiError,
    Denied,
    Forbidden,
    Invalid,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import Condition as Stored
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.unit.operator.reconcile.look import Look, held, with_pod


class TestRefusedWrites:
    """A Node, or a NodeDevice, that the API server will not have written: all the rest goes on."""

    async def test_a_dead_agent_is_told_although_its_node_is_frozen(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        before = told(edges, record)[Condition.ADVERTISED]
        await edges.see(node_device(available=1))
        await fall_silent(edges)
        for _ in range(2):
            await refused_look(edges)
        assert told(edges, record)[Condition.AGENT_READY].reason == Reason.LEASE_EXPIRED
        assert told(edges, record)[Condition.READY].reason == Reason.LEASE_EXPIRED
        assert edges.recorder.reasons() == [Reason.LEASE_EXPIRED]
        # what the next look may settle is no news
        assert told(edges, record)[Condition.ADVERTISED] == before

    async def test_what_the_node_does_not_show_is_told_until_it_does(self, edges: Look) -> None:
        gpu, nic = node_device(available=4), node_device(NIC, available=1)
        await edges.see(gpu, nic)
        await edges.look()
        await edges.see(node_device(available=1))
        for _ in range(3):
            await refused_look(edges)
        advertised = told(edges, gpu)[Condition.ADVERTISED]
        assert (advertised.status, advertised.reason) == ("False", Reason.UPDATE_REFUSED)
        assert advertised.message.endswith("repeated: this Node is frozen")
        assert told(edges, gpu)[Condition.READY].reason == Reason.UPDATE_REFUSED
        assert told(edges, nic)[Condition.ADVERTISED].status == "True"
        assert told(edges, nic)[Condition.READY].status == "True"
        # said once, and no more of it is written
        assert await refused_look(edges) == []
        assert await edges.look() == [f"apply {{'{GPU}': 1, '{NIC}': 1}}", f"conditions {gpu.name}"]
        assert told(edges, gpu)[Condition.ADVERTISED].status == "True"
        assert told(edges, gpu)[Condition.READY].status == "True"

    async def test_a_name_that_never_was_there_is_told_so(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        for _ in range(2):
            assert await refused_look(edges) == []
        assert await refused_look(edges) == [f"conditions {record.name}"]
        assert told(edges, record)[Condition.ADVERTISED].reason == Reason.WRITE_REFUSED
        assert told(edges, record)[Condition.AGENT_READY].status == "True"

    async def test_failures_that_are_not_in_a_row_are_not_told(self, edges: Look) -> None:
        record = node_device(available=1)
        await edges.see(record)
        await edges.look()
        before = told(edges, record)
        for number in (2, 3, 4):
            await edges.see(node_device(available=number))
            await refused_look(edges)
            await refused_look(edges)
            assert await edges.look() == [f"apply {{'{GPU}': {number}}}"]
        assert told(edges, record) == before

    async def test_its_pods_are_told_what_they_hold(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(available=4))
        await edges.look()
        await edges.see(node_device(available=1, allocated=1, allocations=(held("gpu-0"),)))
        assert "poddevice pod-a gpu-0" in await refused_look(edges)

    async def test_after_a_restart_a_name_is_still_ours(self, edges: Look) -> None:
        await edges.see(node_device(available=4))
        await edges.look()
        await edges.see(node_device(available=1))
        for _ in range(3):
            await refused_look(edges)
        edges.cluster.node.update("kubelet", GPU, 0)
        edges.work.forget()
        await edges.see()
        assert (await edges.look())[0] == f"force {{'{GPU}': 1}}"
        assert edges.recorder.reasons() == ["CapacityRepaired"] * 2

    @pytest.mark.parametrize(
        "error",
        [
            Unreachable("PATCH", "x", "away"),
            Unavailable("PATCH", "x", "later", 503),
            Forbidden("PATCH", "x", "Unauthorized", 401),
        ],
    )
    async def test_nothing_else_is_asked_of_an_api_server_that_is_away(self, edges: Look, error: ApiError) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        await edges.see(node_device(available=1))
        await fall_silent(edges)
        edges.cluster.failures["apply_capacity"] = [error]
        with pytest.raises(type(error)):
            await edges.look()
        assert told(edges, record)[Condition.AGENT_READY].status == "True"

    async def test_words_that_are_others_each_time_are_written_once(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        await edges.see(node_device(available=1))
        for port in range(40001, 40004):
            await refused_look(edges, f"failed calling webhook: read tcp 10.0.0.5:{port}: connection reset by peer")
        assert await refused_look(edges, "failed calling webhook: read tcp 10.0.0.6:9: connection reset by peer") == []
        assert told(edges, record)[Condition.ADVERTISED].message.endswith("10.0.0.5:40003: connection reset by peer")
        assert await refused_look(edges, "this Node is frozen") == [f"conditions {record.name}"]
        assert told(edges, record)[Condition.ADVERTISED].message.endswith("repeated: this Node is frozen")

    async def test_the_name_of_a_node_before_is_no_claim_on_this_one(self, edges: Look) -> None:
        record = node_device(available=4)
        before = Stored("True", Reason.ADVERTISED, "", "2020-01-01T00:00:00Z", 1)
        edges.cluster.node.made = "2021-01-01T00:00:00Z"
        await edges.see(replace(record, conditions={**record.conditions, Condition.ADVERTISED: before}))
        for _ in range(3):
            await refused_look(edges)
        assert told(edges, record)[Condition.ADVERTISED].reason == Reason.WRITE_REFUSED
        edges.cluster.node.update("another-operator", GPU, 9)
        edges.work.forget()
        await edges.see()
        assert await edges.look() == [f"conditions {record.name}"]
        assert edges.recorder.reasons() == ["CapacityConflict"] * 2
        assert edges.cluster.node.seen(GPU).capacity == 9

    async def test_a_nodedevice_that_takes_no_conditions_has_neighbours(self, edges: Look) -> None:
        first, last = node_device(NIC, available=1), node_device(available=4)
        await edges.see(first, last)
        order = [record.name for record in edges.cache.node_devices.of_node("node-a")]
        edges.cluster.failures["apply_conditions"] = [Invalid("patch", "nodedevices/status", "Too many: 36", 422)]
        with pytest.raises(Invalid, match="Too many"):
            await edges.look()
        assert [name for name in order if f"conditions {name}" in edges.cluster.writes] == order[1:]
        assert await edges.look() == [f"conditions {order[0]}"]

    async def test_what_is_due_at_a_time_waits_for_no_conditions(self, edges: Look) -> None:
        lost = node_device(NIC, available=1)
        await edges.see(node_device(available=4), lost)
        await edges.look()
        del edges.cluster.node_devices[lost.name]
        await edges.see(node_device(available=4, generation=2))
        edges.cluster.failures["apply_conditions"] = [Invalid("patch", "nodedevices/status", "Too many: 36", 422)]
        with pytest.raises(Invalid):
            await edges.look()
        assert edges.later == [LOST_GRACE_SECONDS]


class TestConflicts:
    """Names that others hold on a Node that the API server will not have written."""

    async def test_a_conflict_is_told_once_and_a_repair_when_it_is_made(self, edges: Look) -> None:
        await edges.see(node_device(available=4))
        await edges.look()
        edges.cluster.node.update("kubelet", GPU, 0)
        edges.cluster.node.update("another-operator", NIC, 9)
        await edges.see(node_device(NIC, available=1))
        for _ in range(2):
            await refused_look(edges)
        assert edges.recorder.reasons() == []
        for _ in range(2):
            await refused_look(edges)
        assert edges.recorder.reasons() == ["CapacityConflict"] * 2
        assert await edges.look() == [f"force {{'{GPU}': 4}}", f"conditions {node_device().name}"]
        assert edges.recorder.reasons() == ["CapacityConflict"] * 2 + ["CapacityRepaired"] * 2

    async def test_whoever_is_at_odds_with_us_stays_known_and_the_pause_ends(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        for number in (9, 8):
            edges.cluster.node.update("rogue", GPU, number)
            await edges.see()
            await edges.look()
        edges.cluster.node.update("rogue", GPU, 7)
        await edges.see(node_device(NIC, available=1))
        for _ in range(5):
            await refused_look(edges)
        conflict = told(edges, record)[Condition.CONFLICT]
        assert (conflict.reason, conflict.message.split()[0]) == (Reason.CHANGED_REPEATEDLY, "rogue")
        assert edges.recorder.reasons()[4:] == ["CapacityConflict"] * 2
        edges.now[0] += FIRST_RETREAT_SECONDS
        assert (await edges.look())[0] == f"force {{'{GPU}': 4}}"

    async def test_after_a_restart_a_contested_name_is_still_ours(self, edges: Look) -> None:
        record = node_device(available=4)
        await edges.see(record)
        await edges.look()
        for number in (9, 8, 7):
            edges.cluster.node.update("rogue", GPU, number)
            await edges.see()
            await edges.look()
        edges.now[0] += FIRST_RETREAT_SECONDS
        for _ in range(3):
            await refused_look(edges)
        assert told(edges, record)[Condition.ADVERTISED].reason == Reason.UPDATE_REFUSED
        edges.work.forget()
        assert (await edges.look())[0] == f"force {{'{GPU}': 4}}"

    async def test_a_contest_is_counted_though_the_last_round_is_refused(
        self, edges: Look, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await edges.see(node_device(available=4))
        await edges.look()
        await edges.see(node_device(NIC, available=1))
        apply = edges.cluster.apply_capacity

        async def with_no_new_name(node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
            if NIC in numbers:
                raise Denied("PATCH", "nodes/status", "no more names", 403)
            return await apply(node, numbers, force=force)

        monkeypatch.setattr(edges.cluster, "apply_capacity", with_no_new_name)
        for number in (9, 8, 7):
            edges.cluster.node.update("rogue", GPU, number)
            await edges.see()
            with pytest.raises(Denied):
                await edges.look()
        assert edges.recorder.reasons() == ["CapacityRepaired"] * 4 + ["CapacityConflict"] * 2


def told(edges: Look, record: NodeDeviceRecord) -> dict[str, Any]:
    """The conditions that are stored."""
    return dict(edges.cluster.node_devices[record.name].conditions)


async def refused_look(edges: Look, problem: str = "this Node is frozen") -> list[str]:
    """Look once while the Node cannot be written; what was written."""
    first = len(edges.cluster.writes)
    edges.cluster.failures["apply_capacity"] = [Denied("PATCH", "nodes/status", problem, 403)]
    with pytest.raises(Denied):
        await edges.look()
    return edges.cluster.writes[first:]


async def fall_silent(edges: Look) -> None:
    """Let the agent's Lease run out; nothing is withdrawn yet."""
    edges.leases._book = LeaseBook().look(edges.cluster.leases, 0, frozenset({"node-a"}))
    edges.leases._clock = lambda: 61.0
    edges.leases._book = replace(edges.leases._book, looked_at=50.0)
    await edges.leases._look()
