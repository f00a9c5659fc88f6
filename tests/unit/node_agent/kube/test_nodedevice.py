"""A failed write is retried as soon as the watch is back or the object is deleted. In process, without a server."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.resources.resource import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import ApiRefused, ApiUnreachable
from nodedevice_agent.kube import client, contention, informer
from nodedevice_agent.kube import nodedevice as node_devices
from nodedevice_agent.kube import publisher as publisher_module
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.contention import FREE_EDITS, LONGEST_PAUSE_SECONDS, WINDOW_SECONDS, Contention
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject, OwnedMetadata
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.write_budget import (
    AGENT_WRITES_AT_ONCE,
    OBJECT_WRITES_AT_ONCE,
    OBJECT_WRITES_PER_SECOND,
    WriteShare,
)
from nodedevice_agent.kube.write_queue import WriteQueue
from nodedevice_agent.runtime.record_only import RecordOnly
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from prometheus_client import generate_latest

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario
from tests.unit.node_agent.kube.status_source import FixedStatus, ManagerOnly

GPU = "example.com/gpu"
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0
NEVER_SECONDS = 3600.0
OWNED = OwnedMetadata(ownerReferences=[{"kind": "Node", "name": "n1"}])
OTHER = NodeDeviceObject(metadata=OWNED, status={"total": 7, "conditions": []})


class FakeCluster:
    """One object and its watch. `fails`: raised by every write."""

    def __init__(self) -> None:
        self.found: NodeDeviceObject | None = OTHER
        self.fails: Exception | None = None
        # another client writes after each write
        self.is_contested = False
        self.attempts = 0
        self._events: asyncio.Queue[str | Exception] = asyncio.Queue()
        self._attempted = asyncio.Condition()

    async def list(self, kind: type[Any], fields: Mapping[str, str]) -> tuple[list[NodeDeviceObject], str]:
        return [self.found] if self.found else [], "1"

    @asynccontextmanager
    async def watch(
        self, kind: type[Any], fields: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[tuple[str, NodeDeviceObject]]]:
        yield self._events_of_watch()

    async def _events_of_watch(self) -> AsyncIterator[tuple[str, NodeDeviceObject]]:
        while True:
            match await self._events.get():
                case Exception() as lost:
                    raise lost
                case event:
                    yield event, self.found or OTHER

    async def node_uid(self, name: str) -> str:
        return "uid"

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        await self._attempt()
        self.found = NodeDeviceObject(metadata=OWNED)
        return self.found

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        await self._attempt()
        written = self.found = NodeDeviceObject(metadata=OWNED, status=status)
        if self.is_contested:
            self.found = OTHER
            self._events.put_nowait("MODIFIED")
        return written

    async def _attempt(self) -> None:
        async with self._attempted:
            self.attempts += 1
            self._attempted.notify_all()
        if self.fails is not None:
            raise self.fails

    async def until_attempts(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._attempted:
            await self._attempted.wait_for(lambda: self.attempts >= count)

    def delete(self) -> None:
        self.found = None
        self._events.put_nowait("DELETED")

    def lose_watch(self) -> None:
        self._events.put_nowait(ApiUnreachable("watching", "connection lost"))


@asynccontextmanager
async def published(cluster: FakeCluster) -> AsyncIterator[NodeDeviceSync]:
    made = NodeDeviceSync(FixedStatus(cast(KubeClient, cluster), total=1), GPU)
    made.touch()
    async with background(made.run()):
        yield made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """After a failed write the next one never comes by time alone."""
    monkeypatch.setattr(node_devices, "pause_seconds", lambda failures: NEVER_SECONDS)
    monkeypatch.setattr(node_devices, "_REFUSED_PAUSE_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(node_devices, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(contention, "LONGEST_PAUSE_SECONDS", NEVER_SECONDS)
    monkeypatch.setattr(informer, "pause_seconds", lambda failures: 0)
    monkeypatch.setattr(informer.Watches, "reserve", lambda self, is_urgent: 0)
    return FakeCluster()


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ApiUnreachable("writing", "no answer"), id="unreachable"),
        pytest.param(ApiRefused("writing", "too big", 413), id="refused"),
    ],
)
@pytest.mark.parametrize(
    ("event", "attempts"),
    [
        pytest.param(FakeCluster.lose_watch, 2, id="the watch is back"),
        # created, and its status written
        pytest.param(FakeCluster.delete, 3, id="the object is deleted"),
    ],
)
async def test_is_written_immediately_when(
    cluster: FakeCluster, event: Callable[[FakeCluster], None], attempts: int, failure: Exception
) -> None:
    cluster.fails = failure
    async with published(cluster):
        await cluster.until_attempts(1)
        cluster.fails = None
        event(cluster)
        await cluster.until_attempts(attempts)
    assert cluster.found is not None
    assert cluster.found.status["total"] == 1


async def test_the_duration_includes_failed_writes(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now, attempt = 0, FakeCluster._attempt

    async def slow(self: FakeCluster) -> None:
        nonlocal now
        now += 50
        await attempt(self)

    monkeypatch.setattr(FakeCluster, "_attempt", slow)
    monkeypatch.setattr(node_devices, "time", SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: 0.0))
    observed: list[float] = []
    monkeypatch.setattr(metrics, "PUBLISH_SECONDS", SimpleNamespace(observe=observed.append))
    cluster.fails = ApiUnreachable("writing", "no answer")
    async with published(cluster):
        await cluster.until_attempts(1)
        cluster.fails = None
        cluster.lose_watch()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not observed:
                await asyncio.sleep(0)
    assert observed == [100]


@virtual_time
async def test_writes_without_end_are_held_back_and_the_last_state_arrives(cluster: FakeCluster) -> None:
    async with published(cluster) as made:
        publisher, number = cast(FixedStatus, made._source), 0
        loop = asyncio.get_running_loop()
        began, seconds = loop.time(), 10.0
        while loop.time() < began + seconds:
            number += 1
            publisher.status = NodeDeviceStatus(total=number, available=number % 2)
            made.touch()
            await asyncio.sleep(0.01)
        assert cluster.attempts <= OBJECT_WRITES_AT_ONCE + OBJECT_WRITES_PER_SECOND * seconds + 1
        async with asyncio.timeout(PATIENCE_SECONDS):
            while cluster.found is None or cluster.found.status["total"] != number:
                await asyncio.sleep(0.01)
    assert number > 2 * cluster.attempts


@virtual_time
async def test_the_budget_is_of_all_objects_of_an_agent() -> None:
    turns: list[int] = []
    queue = WriteQueue(asyncio.get_running_loop().time)

    def share(number: int) -> WriteShare:
        return queue.share(lambda: turns.append(number))

    shares = [share(number) for number in range(100)]
    at_once = [queue.may_write(each, is_loss=False) for each in shares]
    assert sum(at_once) == AGENT_WRITES_AT_ONCE
    waiting = [number for number, has_written in enumerate(at_once) if not has_written]
    left, urgent = shares[waiting[0]], shares[waiting[-1]]
    queue.leave(left)
    assert not queue.may_write(urgent, is_loss=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(turns) < 3:
            await asyncio.sleep(0.01)
    # once it is its turn it may write, once; another one had the fair turn at most
    assert waiting[-1] in turns[:2]
    assert waiting[0] not in turns
    assert queue.may_write(urgent, is_loss=True)
    assert not queue.is_waiting(left)


class Unsettled(RecordOnly):
    is_settled = False


@pytest.mark.parametrize(
    ("scenario", "are_pods_known", "backend", "is_written"),
    [
        pytest.param(Scenario.with_plugin(1), True, RecordOnly(), True, id="all is known"),
        pytest.param(Scenario.with_plugin(1), False, RecordOnly(), False, id="no list of pods"),
        pytest.param(Scenario.with_plugin(1), True, Unsettled(), False, id="backend not settled"),
        pytest.param(Scenario.with_plugin(1).restarted(), True, RecordOnly(), False, id="no device list"),
    ],
)
async def test_after_a_start_the_last_status_stays_until_all_is_known(
    scenario: Scenario, are_pods_known: bool, backend: RecordOnly, is_written: bool
) -> None:
    publisher = Publisher(cast(KubeClient, None), "n1", "none")
    async with asyncio.TaskGroup() as tasks:
        publisher.start(tasks, cast(PluginHost, SimpleNamespace(manager=scenario.manager, unsaved="")), backend)
    publisher.are_pods_known = are_pods_known
    status = publisher.desired_status(GPU, NodeDeviceStatus(), "2026-01-01T00:00:00Z")
    assert (status is not None) is is_written


async def test_a_reconnected_watch_causes_one_attempt(cluster: FakeCluster) -> None:
    cluster.fails = ApiUnreachable("writing", "no answer")
    async with published(cluster) as made:
        for attempts in range(1, 5):
            await cluster.until_attempts(attempts)
            # what changes meanwhile does not shorten the pause
            made.touch()
            for _ in range(20):
                await asyncio.sleep(0)
            assert cluster.attempts == attempts
            cluster.lose_watch()


RESTORED = "NodeDevice status was modified by another client; restoring it"
CONFLICT = (
    "conflict: another client keeps modifying the NodeDevice status; stop any other agent that has this --node-name"
)


async def test_a_client_that_writes_after_each_write_is_answered_with_growing_pauses(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.is_contested = True
    async with published(cluster):
        await cluster.until_attempts(FREE_EDITS + 1)
        for _ in range(100):
            await asyncio.sleep(0)
        # the pause begins with the write that follows the first edit too many
        assert cluster.attempts <= FREE_EDITS + 2
    assert [record.getMessage() for record in caplog.records] == [RESTORED] * FREE_EDITS + [CONFLICT]


def test_contention_is_logged_once_a_minute_and_ends_with_the_edits(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    found = Contention("n1.gpu", lambda: now)
    for _ in range(FREE_EDITS):
        found.edited()
        assert found.pause_seconds() == 0
    for _ in range(240):
        now += 1
        found.edited()
        assert client.FIRST_PAUSE_SECONDS <= found.pause_seconds() <= LONGEST_PAUSE_SECONDS
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [RESTORED] * FREE_EDITS + [CONFLICT] * 4
    now += WINDOW_SECONDS
    assert found.pause_seconds() == 0
    found.edited()
    assert caplog.records[-1].getMessage() == RESTORED


def gone() -> Scenario:
    """A resource whose plugin has been gone for longer than the grace period."""
    scenario = Scenario.with_plugin(2)
    scenario.disconnect()
    scenario.passes(STOP_GRACE_PERIOD_SECONDS)
    return scenario


async def test_a_deletion_sticks_once_the_plugin_is_gone_and_nothing_is_left_of_the_resource(
    cluster: FakeCluster,
) -> None:
    scenario = gone()
    publisher = FixedStatus(cast(KubeClient, cluster), total=2)
    metrics.begin(GPU, pre_start_required=True)
    metrics.observe(scenario.snapshot())
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        publisher.start(tasks, ManagerOnly(scenario), RecordOnly())
        publisher.publish(GPU)
        await cluster.until_attempts(1)
        cluster.delete()
        # its tasks end, so this does
    assert (cluster.found, cluster.attempts) == (None, 1)
    assert GPU not in scenario.manager.resources
    assert GPU not in generate_latest().decode()


async def test_no_status_is_made_before_what_it_shows_is_on_disk(cluster: FakeCluster) -> None:
    publisher = Interrupted(cluster)
    publisher.start(cast(asyncio.TaskGroup, None), ManagerOnly(Scenario.with_plugin(1)), RecordOnly())
    made = NodeDeviceSync(publisher, GPU)
    made.touch()
    async with background(made.run()):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await publisher.waits.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (publisher.made, cluster.attempts) == (0, 0)
        publisher.is_on_disk.set()
        await cluster.until_attempts(1)


class Interrupted(FixedStatus):
    """The resource is forgotten just when everything is on disk and its status is about to be made."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cast(KubeClient, cluster), total=1)
        self.is_on_disk = asyncio.Event()
        self.waits = asyncio.Event()
        # statuses
        self.made = 0

    async def saved(self) -> None:
        self.waits.set()
        await self.is_on_disk.wait()

    def desired_status(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> NodeDeviceStatus:
        assert resource_name in self._host.manager.resources
        self.made += 1
        return super().desired_status(resource_name, observed, wall_time)

    def forget(self, resource_name: str) -> bool:
        self.is_on_disk.set()
        return super().forget(resource_name)


async def test_a_status_is_not_made_of_a_resource_that_was_forgotten_meanwhile(cluster: FakeCluster) -> None:
    publisher = Interrupted(cluster)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        publisher.start(tasks, ManagerOnly(gone()), RecordOnly())
        publisher.publish(GPU)
        await publisher.waits.wait()
        cluster.delete()
    assert cluster.attempts == 0


def stored(version: int, cordoned: str) -> NodeDeviceObject:
    metadata = OwnedMetadata(resourceVersion=str(version), ownerReferences=OWNED.ownerReferences)
    spec = {"cordonedDevices": [{"id": cordoned}]}
    return NodeDeviceObject(metadata=metadata, spec=spec, status={"total": 1, "conditions": []})


@pytest.mark.parametrize(
    ("version", "as_of", "cordoned"),
    [
        pytest.param(40, 45, {"before"}, id="a list from before our own write"),
        pytest.param(60, 65, {"listed"}, id="a newer list"),
        pytest.param(40, 70, {"listed"}, id="a restored server that has grown past our write"),
        pytest.param(40, sys.maxsize, {"listed"}, id="a restored server"),
    ],
)
async def test_a_list_is_taken_unless_our_own_write_is_newer(
    caplog: pytest.LogCaptureFixture, version: int, as_of: int, cordoned: set[str]
) -> None:
    publisher = FixedStatus(cast(KubeClient, FakeCluster()), total=1)
    made = NodeDeviceSync(publisher, GPU)
    made.synced([stored(50, "before")], 50)
    # as if it were written by us
    made._version, made._ours = 50, ({"total": 1, "conditions": []},)
    made.synced([stored(version, "listed")], as_of)
    assert publisher.cordoned_ids == cordoned
    assert [record.getMessage() for record in caplog.records] == []


class ManyObjects(FakeCluster):
    """Objects by name, each of which exists until its watch reports that it was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[str] = []
        self.deleted: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def watch(
        self, kind: type[Any], fields: Mapping[str, str], version: str, seconds: int
    ) -> AsyncIterator[AsyncIterator[tuple[str, NodeDeviceObject]]]:
        name = fields["metadata.name"]
        self.watched.append(name)
        yield self._until_deleted(self.deleted.setdefault(name, asyncio.Event()))

    async def _until_deleted(self, deleted: asyncio.Event) -> AsyncIterator[tuple[str, NodeDeviceObject]]:
        await deleted.wait()
        yield "DELETED", OTHER
        await asyncio.Event().wait()


@virtual_time
async def test_no_more_objects_are_watched_than_a_node_has_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait until one is deleted: first those whose plugin is connected."""
    monkeypatch.setattr(publisher_module, "MAX_NAMES", 2)
    cluster, scenario = ManyObjects(), Scenario()
    names = [f"example.com/r{number}" for number in range(5)]
    for endpoint, name in enumerate(names):
        scenario.plugin(1, name, endpoint)
    for endpoint in (0, 1, 2):
        scenario.disconnect(names[endpoint], endpoint)
    scenario.passes(STOP_GRACE_PERIOD_SECONDS + 1)
    publisher = FixedStatus(cast(KubeClient, cluster), total=1)
    async with asyncio.TaskGroup() as tasks:
        publisher.start(tasks, ManagerOnly(scenario), RecordOnly())
        for name in names:
            publisher.publish(name)
        expected = [0, 1]
        for following in (3, 4, 2):
            await asyncio.sleep(1)
            assert [*cluster.watched] == [node_device_name("n1", names[number]) for number in expected]
            leaves = names[expected[-2]]
            scenario.disconnect(leaves, names.index(leaves))
            scenario.passes(STOP_GRACE_PERIOD_SECONDS + 1)
            cluster.deleted[node_device_name("n1", leaves)].set()
            expected.append(following)
        await asyncio.sleep(1)
        assert [*cluster.watched] == [node_device_name("n1", names[number]) for number in expected]
        for name in names:
            publisher._objects[name].stop() if name in publisher._objects else None
