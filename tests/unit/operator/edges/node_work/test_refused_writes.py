"""What is told while the API server refuses a write: everything that the refusal is not about."""

from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.core.leases import LeaseBook
from nodedevice_operator.core.records import NodeDeviceRecord
from nodedevice_operator.errors import (
    ApiError,
    Denied,
    Invalid,
    Unavailable,
    Unreachable,
)

from tests.fakes.operator_model import GPU, NIC, node_device
from tests.unit.operator.edges.node_work.look import Look, held, with_pod


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

    @pytest.mark.parametrize("error", [Unreachable("PATCH", "x", "away"), Unavailable("PATCH", "x", "later", 503)])
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

    async def test_a_nodedevice_that_takes_no_conditions_has_neighbours(self, edges: Look) -> None:
        first, last = node_device(NIC, available=1), node_device(available=4)
        await edges.see(first, last)
        order = [record.name for record in edges.cache.node_devices.of_node("node-a")]
        edges.cluster.failures["apply_conditions"] = [Invalid("patch", "nodedevices/status", "Too many: 36", 422)]
        with pytest.raises(Invalid, match="Too many"):
            await edges.look()
        assert [name for name in order if f"conditions {name}" in edges.cluster.writes] == order[1:]
        assert await edges.look() == [f"conditions {order[0]}"]


def told(edges: Look, record: NodeDeviceRecord) -> dict[str, Any]:
    """The conditions that are stored."""
    return dict(edges.cluster.node_devices[record.name].conditions)


async def refused_look(edges: Look) -> list[str]:
    """Look once while the Node is frozen; what was written."""
    first = len(edges.cluster.writes)
    edges.cluster.failures["apply_capacity"] = [Denied("PATCH", "nodes/status", "this Node is frozen", 403)]
    with pytest.raises(Denied):
        await edges.look()
    return edges.cluster.writes[first:]


async def fall_silent(edges: Look) -> None:
    """Let the agent's Lease run out; nothing is withdrawn yet."""
    edges.leases._book = LeaseBook().look(edges.cluster.leases, 0, frozenset({"node-a"}))
    edges.leases._clock = lambda: 61.0
    edges.leases._book = replace(edges.leases._book, looked_at=50.0)
    await edges.leases._look()
