"""One look at a node: what is written when everything is known, and nothing when it is not."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from nodedevice_api.names import Condition, Reason
from nodedevice_operator.core.leases import LeaseBook
from nodedevice_operator.core.records import Allocation, LeaseRecord, NodeDeviceRecord, PodDeviceRecord, PodRecord
from nodedevice_operator.edges import node_work
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.capacity_work import CapacityWork
from nodedevice_operator.edges.lease_watch import LeaseWatch
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.node_work import NodeWork
from nodedevice_operator.edges.pod_device_work import PodDeviceWork
from nodedevice_operator.edges.recorder import Recorder
from nodedevice_operator.edges.sync import KINDS, Sync
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)

from tests.fakes.cluster_model import ClusterModel
from tests.fakes.operator_model import GPU, NIC, node_device

POD_UID = "pod-uid-a"


class _Recorder(Recorder):
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.posted: list[Any] = []

    def post(self, event: Any) -> None:
        self.posted.append(event)

    def reasons(self) -> list[str]:
        return [event.reason for event in self.posted]


@dataclass
class Look:
    """Edges around one ClusterModel, whose objects the cache is given one by one or by lists."""

    cluster: ClusterModel
    cache: Cache
    recorder: _Recorder
    leases: LeaseWatch
    work: NodeWork
    news: list[str]
    now: list[float]
    crowd: list[str]

    async def see(self, *records: NodeDeviceRecord) -> None:
        """Publish NodeDevices, and have every list read again."""
        for record in records:
            version = self.cluster.version = self.cluster.version + 1
            stored = self.cluster.node_devices.get(record.name)
            conditions = {**record.conditions, **(stored.conditions if stored else {})}
            published = replace(record, resource_version=version, conditions=conditions)
            self.cluster.node_devices[record.name] = published
        sync = Sync(self.cache, self.cluster, lambda _: None)
        for kind in KINDS:
            await sync._take_in(kind)

    async def look(self) -> list[str]:
        """Look once; what was written."""
        first = len(self.cluster.writes)
        await self.work.look("node-a")
        return self.cluster.writes[first:]


@pytest.fixture
async def edges() -> Look:
    cluster = ClusterModel(leases={"node-a": LeaseRecord("now", 60)})
    cache, recorder, metrics = Cache(), _Recorder(), Metrics()
    news: list[str] = []
    now = [100.0]
    crowd: list[str] = []
    leases = LeaseWatch(cluster, cache, lambda _: None, metrics, recorder.post)
    await leases._look()
    work = NodeWork(
        cache,
        cluster,
        leases,
        CapacityWork(cache, cluster, recorder, metrics),
        PodDeviceWork(cache, cluster, recorder),
        lambda _, record: news.append(record.name),
        lambda: bool(crowd),
        recorder.post,
        lambda: now[0],
    )
    return Look(cluster, cache, recorder, leases, work, news, now, crowd)


def held(*device_ids: str, uid: str = POD_UID, name: str = "pod-a", **more: Any) -> Allocation:
    return Allocation("default", name, uid, "main", device_ids, 0, bool(more.get("is_releasing")))


def with_pod(edges: Look, uid: str = POD_UID, node: str = "node-a", name: str = "pod-a") -> None:
    edges.cluster.pods["default", name] = PodRecord(uid, node)


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


class TestPodDevices:
    """PodDevices of the node, as its allocations say."""

    async def test_made_told_mended_and_deleted(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        assert "poddevice pod-a gpu-0" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]
        await edges.see(node_device(allocated=2, allocations=(held("gpu-0", "gpu-1"),)))
        assert "poddevice pod-a gpu-0,gpu-1" in await edges.look()
        edges.cluster.pods.clear()
        await edges.see(node_device(available=2))
        assert f"delete pod-a {POD_UID}" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]

    async def test_refused_once_and_without_harm_to_the_neighbour(self, edges: Look) -> None:
        with_pod(edges, node="node-b", name="stolen", uid="pod-uid-b")
        with_pod(edges)
        await edges.see(node_device(available=1))
        await edges.look()
        claims = (held("gpu-1", uid="pod-uid-b", name="stolen"), held("gpu-0"))
        await edges.see(node_device(allocated=2, allocations=claims))
        assert "poddevice pod-a gpu-0" in await edges.look()
        await edges.look()
        assert sorted(edges.recorder.reasons()) == ["AllocationRefused", "DevicesAllocated"]
        assert ("default", "stolen") not in edges.cluster.pod_devices

    async def test_what_came_while_no_operator_ran_is_refused_as_well(self, edges: Look) -> None:
        with_pod(edges, node="node-b")
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"]
        # the next process says the same, and then there is such an Event already
        edges.work.forget()
        await edges.look()
        first, again = edges.recorder.posted
        assert first == again
        assert first.is_standing

    async def test_a_pod_that_is_not_bound_is_refused_once_and_believed_when_it_is(
        self, edges: Look, caplog: pytest.LogCaptureFixture
    ) -> None:
        with_pod(edges, node="")
        for healthy in range(4):
            await edges.see(node_device(healthy=healthy, allocated=1, allocations=(held("gpu-0"),)))
            await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"]
        assert [record.message for record in caplog.records].count("allocation refused") == 1
        with_pod(edges)
        assert "poddevice pod-a gpu-0" in await edges.look()

    async def test_a_pod_that_is_refused_to_a_node_again_is_told_again(self, edges: Look) -> None:
        with_pod(edges, node="")
        for allocations in ((held("gpu-0"),), (), (held("gpu-0"),)):
            await edges.see(node_device(allocations=allocations))
            await edges.look()
        assert edges.recorder.reasons() == ["AllocationRefused"] * 2

    @pytest.mark.parametrize("pod", [None, PodRecord("another-uid", "node-a"), PodRecord("another-uid", "node-b")])
    async def test_a_pod_that_is_gone_is_passed_over_in_silence(self, edges: Look, pod: PodRecord | None) -> None:
        if pod is not None:
            edges.cluster.pods["default", "pod-a"] = pod
        await edges.see(node_device(allocated=1))
        await edges.look()
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.cluster.pod_devices == {}
        assert edges.recorder.reasons() == []

    async def test_the_next_pod_of_that_name_replaces_the_object(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        with_pod(edges, uid="pod-uid-new")
        await edges.see(node_device(allocated=1, allocations=(held("gpu-1", uid="pod-uid-new"),)))
        writes = await edges.look()
        assert [write for write in writes if "pod-a" in write] == [f"delete pod-a {POD_UID}", "poddevice pod-a gpu-1"]

    async def test_one_that_vanished_is_made_again_without_a_second_event(self, edges: Look) -> None:
        with_pod(edges)
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        edges.cluster.pod_devices.clear()
        changed = node_device(allocated=2, allocations=(held("gpu-0", "gpu-1"),))
        edges.cache.node_devices.put(replace(changed, resource_version=9999))
        with pytest.raises(Conflict):
            await edges.look()
        assert "poddevice pod-a gpu-0,gpu-1" in await edges.look()
        assert edges.recorder.reasons() == ["DevicesAllocated"]

    async def test_orphans_stay_while_a_nodedevice_says_nothing(self, edges: Look) -> None:
        orphan = PodDeviceRecord("default", "pod-z", "uid-z", 5, "node-a", "pod-uid-z", "")
        edges.cluster.pod_devices[orphan.key] = orphan
        await edges.see(node_device(has_status=False))
        assert await edges.look() == []
        await edges.see(node_device(available=1))
        assert "delete pod-z pod-uid-z" in await edges.look()

    async def test_orphans_of_a_node_that_nothing_is_known_of_are_deleted(self, edges: Look) -> None:
        orphan = PodDeviceRecord("default", "pod-z", "uid-z", 5, "node-gone", "pod-uid-z", "")
        edges.cluster.pod_devices[orphan.key] = orphan
        await edges.see()
        await edges.work.look("node-gone")
        assert edges.cluster.pod_devices == {}

    async def test_a_namespace_that_goes_away_is_no_failure(self, edges: Look) -> None:
        with_pod(edges)
        edges.cluster.failures["apply_pod_device"] = [NotFound("patch", "poddevices", "terminating", 403)]
        await edges.see(node_device(allocated=1, allocations=(held("gpu-0"),)))
        await edges.look()
        assert edges.cluster.pod_devices == {}

    async def test_a_refused_poddevice_does_not_hold_up_the_conditions(self, edges: Look) -> None:
        with_pod(edges)
        record = node_device(allocated=1, allocations=(held("gpu-0"),))
        edges.cluster.failures["apply_pod_device"] = [Forbidden("patch", "poddevices", "no", 403)]
        await edges.see(record)
        with pytest.raises(Forbidden):
            await edges.look()
        assert f"conditions {record.name}" in edges.cluster.writes


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
