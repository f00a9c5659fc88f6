"""What is written of one NodeDevice and when, and what becomes of another client's edits. In process, without a server."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from msgspec import to_builtins
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject, OwnedMetadata
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_common.tasks import FIRST_PAUSE_SECONDS, retried
from nodedevice_kube.api_errors import Invalid, Unavailable

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario
from tests.unit.node_agent.kube.one_object import GPU, NAME, OWNER, PATIENCE_SECONDS, FakeCluster, published
from tests.unit.node_agent.kube.one_object import cluster as cluster
from tests.unit.node_agent.kube.status_source import FixedStatus, Host
from tests.unit.node_agent.kube.test_contention import RESTORED

CREATE = ("create", ("n1", "uid"), GPU)
STATUS = ("status", NAME, 1)
OWNER_RESTORED = "NodeDevice owner reference restored"
CORDONED = {"cordonedDevices": [{"id": "d0"}]}


def an_object(total: int | None, version: int = 10, *owners: dict[str, str], **more: Any) -> NodeDeviceObject:
    """total: what its status says; None for one without a status."""
    metadata = OwnedMetadata(
        name=NAME, uid="u", resourceVersion=str(version), ownerReferences=[*owners] if owners else [OWNER]
    )
    status = {} if total is None else to_builtins(NodeDeviceStatus(total=total))
    return NodeDeviceObject(metadata=metadata, status=status, **more)


class Visited(FixedStatus):
    """Of an object that is visited. cordons: the UID, and the devices in the spec.

    is_on_disk: whether all that is shown is; it is once that was waited for.
    """

    def __init__(self, objects: FakeCluster, total: int = 1) -> None:
        super().__init__(cast(KubeClient, objects), total=total)
        self.cordons: list[tuple[str, set[str]]] = []
        self.is_forgotten = False
        self.is_on_disk = True
        # statuses so far
        self.made = 0

    async def saved(self) -> None:
        self.is_on_disk = True

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        assert self.is_on_disk
        self.made += 1
        return super().status_maker(resource_name, observed, wall_time)

    def is_parked(self, resource_name: str) -> bool:
        return True

    def forget(self, resource_name: str) -> bool:
        return self.is_forgotten

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        self.cordons.append((uid, {*in_spec}))


def edits(caplog: pytest.LogCaptureFixture) -> int:
    """How many of another client were seen."""
    return [record.message for record in caplog.records].count(RESTORED)


async def all_is_done() -> None:
    """What can be done at once."""
    for _ in range(100):
        await asyncio.sleep(0)


# -- what is written -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "requests", "event"),
    [
        pytest.param(None, [CREATE, STATUS], "NodeDevice created", id="none"),
        pytest.param(an_object(None), [STATUS], None, id="one without a status"),
        pytest.param(an_object(7), [STATUS], None, id="another status"),
        pytest.param(an_object(1), [], None, id="as it is"),
        pytest.param(an_object(1, 10, {"kind": "Pod", "name": "n1"}, OWNER), [], None, id="two owners"),
        pytest.param(an_object(1, 10, {**OWNER, "name": "n2"}), [CREATE, STATUS], OWNER_RESTORED, id="of another Node"),
        pytest.param(an_object(1, 10, {**OWNER, "kind": "Pod"}), [CREATE, STATUS], OWNER_RESTORED, id="of a Pod"),
    ],
)
async def test_only_what_differs_is_written(
    found: NodeDeviceObject | None, requests: list[tuple[Any, ...]], event: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    objects = FakeCluster(found)
    sync = NodeDeviceSync(Visited(objects), GPU)
    for _ in range(2):
        # the second time all is as it should be
        await sync.visit()
        assert objects.writes == requests
    assert [record.message for record in caplog.records] == ([event] if event else [])


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["needed", "its plugin is gone"])
async def test_one_that_is_deleted_a_moment_before_is_created_again_if_it_is_needed(is_forgotten: bool) -> None:
    objects = FakeCluster(an_object(7))
    objects.missing = 1
    source = Visited(objects)
    source.is_forgotten = is_forgotten
    await NodeDeviceSync(source, GPU).visit()
    assert objects.writes == ([STATUS] if is_forgotten else [STATUS, CREATE, STATUS])


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(None, id="deleted with its Node"),
        pytest.param(an_object(1, 60, {**OWNER, "kind": "Pod"}), id="orphaned by its Node"),
    ],
)
async def test_the_uid_of_the_node_is_read_once_unless_an_object_may_have_gone_with_it(
    left: NodeDeviceObject | None,
) -> None:
    objects = FakeCluster(None)
    source = Visited(objects)
    first, second = NodeDeviceSync(source, GPU), NodeDeviceSync(source, GPU)
    await first.visit()
    objects.node = "new"
    owners = []
    for sync, found in ((second, None), (first, left), (NodeDeviceSync(source, GPU), None)):
        objects.objects = {} if found is None else {NAME: found}
        await sync.visit()
        owners.append(objects.writes[-2][1][1])
    assert owners == ["uid", "new", "new"]


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
    publisher = Publisher(cast(KubeClient, None), "n1")
    async with asyncio.TaskGroup() as tasks:
        publisher.start(tasks, Host(scenario), backend)
    publisher.are_pods_known = are_pods_known
    status = publisher.status_maker(GPU, NodeDeviceStatus(), "2026-01-01T00:00:00Z")
    assert (status is not None) is is_written


class Registering(FakeCluster):
    """While the object is created, its plugin lists another device, and a pod gets it."""

    source: Visited

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        self.source.status, self.source.is_on_disk = NodeDeviceStatus(total=4), False
        return await super().create_node_device(node, resource_name)


async def test_the_first_status_has_what_came_while_the_object_was_created() -> None:
    objects = Registering(None)
    objects.source = Visited(objects)
    await NodeDeviceSync(objects.source, GPU).visit()
    assert objects.writes == [CREATE, ("status", NAME, 4)]


class Interrupted(FixedStatus):
    """The resource is forgotten just when everything is on disk and its status is about to be made."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cast(KubeClient, cluster), total=1)
        self.is_on_disk = asyncio.Event()
        self.waits = asyncio.Event()

    async def saved(self) -> None:
        self.waits.set()
        await self.is_on_disk.wait()

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        assert self.is_on_disk.is_set()
        assert resource_name in self._host.manager.resources
        return super().status_maker(resource_name, observed, wall_time)

    def forget(self, resource_name: str) -> bool:
        self.is_on_disk.set()
        return super().forget(resource_name)


@virtual_time
@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_status_is_made_of_what_is_on_disk_and_not_of_a_resource_that_was_forgotten(
    cluster: FakeCluster, is_forgotten: bool
) -> None:
    publisher, scenario = Interrupted(cluster), Scenario.with_plugin(1)
    scenario.disconnect()
    scenario.passes(STOP_GRACE_PERIOD_SECONDS)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        publisher.start(tasks, Host(scenario), RecordOnly())
        publisher.publish(GPU)
        await publisher.waits.wait()
        await asyncio.sleep(1)
        assert cluster.attempts == 0
        if not is_forgotten:
            publisher.is_on_disk.set()
            await cluster.until_attempts(1)
        # its tasks end, so this does
        cluster.delete()
    assert cluster.attempts == (0 if is_forgotten else 1)
    assert GPU not in scenario.manager.resources


async def test_cordons_are_those_of_the_object_and_none_without_one() -> None:
    source = Visited(FakeCluster())
    sync = NodeDeviceSync(source, GPU)
    sync.synced([an_object(1, spec=CORDONED)], 10)
    sync.updated(NodeDeviceObject(spec=CORDONED))
    sync.deleted(an_object(1, spec=CORDONED))
    assert source.cordons == [("u", {"d0"}), ("", {"d0"}), ("", set())]


@pytest.mark.parametrize(
    ("version", "as_of", "is_taken"),
    [
        pytest.param(40, 45, False, id="a list from before our own write"),
        pytest.param(60, 65, True, id="a newer list"),
        pytest.param(40, 70, True, id="a restored server that has grown past our write"),
        pytest.param(40, sys.maxsize, True, id="a restored server"),
    ],
)
async def test_a_list_is_taken_unless_our_own_write_is_newer(
    version: int, as_of: int, is_taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = Visited(FakeCluster(an_object(7)))
    sync = NodeDeviceSync(source, GPU)
    await sync.visit()
    assert (sync.known_version, source.cordons[-1]) == (50, ("u", set()))
    sync.synced([an_object(1, version, spec=CORDONED)], as_of)
    assert source.cordons[-1] == ("u", {"d0"} if is_taken else set())
    assert edits(caplog) == 0


# -- when it is written --------------------------------------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Unavailable("writing", "x", "no answer"), id="unreachable"),
        pytest.param(Invalid("writing", "x", "too big", 413), id="refused"),
    ],
)
@pytest.mark.parametrize(
    "event",
    [pytest.param(FakeCluster.lose_watch, id="the watch is back"), pytest.param(FakeCluster.delete, id="deleted")],
)
async def test_after_failures_it_is_written_as_soon_as_the_server_responds_or_the_object_is_gone(
    cluster: FakeCluster, event: Callable[[FakeCluster], None], failure: Exception
) -> None:
    cluster.fails, clock = failure, asyncio.get_running_loop().time
    async with published(cluster):
        await cluster.until_attempts(7)
        # by now a pause is longer than these
        before, cluster.fails = clock(), None
        event(cluster)
        while cluster.found is None or cluster.found.status.get("total") != 1:
            await asyncio.sleep(0.1)
        assert clock() - before < 5


@virtual_time
async def test_a_run_after_a_failure_writes_what_the_one_before_could_not(cluster: FakeCluster) -> None:
    """The object is as this agent has left it, so the list alone asks for no write."""
    source = FixedStatus(cast(KubeClient, cluster), total=1)
    sync = NodeDeviceSync(source, GPU)
    sync.touch()
    async with background(retried("nodedevice", sync.run)):
        await cluster.until_attempts(1)
        await asyncio.sleep(1)
        source.status, cluster.fails = NodeDeviceStatus(total=2), OSError(24, "Too many open files")
        sync.touch()
        await cluster.until_attempts(2)
        await asyncio.sleep(0.5)
        assert not sync.is_settled
        cluster.fails = None
        await asyncio.sleep(FIRST_PAUSE_SECONDS + 1)
    assert cluster.found is not None
    assert cluster.found.status["total"] == 2


# -- what another client has written -------------------------------------------------------------------------------------------


@virtual_time
async def test_what_others_write_beside_ours_asks_for_no_other_status(caplog: pytest.LogCaptureFixture) -> None:
    source = Visited(FakeCluster(an_object(7)))
    sync = NodeDeviceSync(source, GPU)
    async with background(sync.run()):
        await all_is_done()
        beside = an_object(1, 51)
        beside.status["conditions"] = [{"type": "Ready", "status": "True"}]
        sync.updated(beside)
        # the event of our own write, whose response has shown it
        sync.updated(an_object(1, 50, spec=CORDONED))
        await asyncio.sleep(1)
        assert (source.made, sync.is_settled, edits(caplog), source.cordons[-1]) == (1, True, 0, ("u", set()))
        for found in (an_object(2, 52), an_object(1, 53, {"kind": "Pod", "name": "n1"})):
            sync.updated(found)
            assert not sync.is_settled
            await asyncio.sleep(1)
        assert (source.made, edits(caplog)) == (4, 1)


async def test_an_edit_is_counted_once_until_it_is_undone(caplog: pytest.LogCaptureFixture) -> None:
    """Also of a status that was there before this agent."""
    objects = FakeCluster(an_object(1))
    sync = NodeDeviceSync(Visited(objects), GPU)
    await sync.visit()
    for total in (7, 8):
        sync.updated(an_object(total))
        assert edits(caplog) == 1
    objects.objects[NAME] = an_object(8)
    await sync.visit()
    assert (objects.writes, edits(caplog)) == ([STATUS], 1)
    # of before that write
    sync.updated(an_object(9, 49))
    assert edits(caplog) == 1
    sync.updated(an_object(9, 51))
    assert edits(caplog) == 2


async def test_what_is_no_edit(caplog: pytest.LogCaptureFixture) -> None:
    sync = NodeDeviceSync(Visited(FakeCluster(an_object(7))), GPU)
    # what there was before the first write
    await sync.visit()
    # the object is new, and then another one
    sync.updated(an_object(None, 60))
    sync.deleted(an_object(None, 60))
    sync.updated(an_object(7, 61))
    assert edits(caplog) == 0


@pytest.mark.parametrize(("total", "is_edit"), [(0, False), (1, True), (2, False), (4, False), (6, True)])
async def test_writes_of_ours_that_are_seen_late_are_no_edits(
    total: int, is_edit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a response any of them may have been stored; the last few are known."""
    objects = FakeCluster(an_object(0))
    source = Visited(objects, 0)
    sync = NodeDeviceSync(source, GPU)
    await sync.visit()
    objects.fails = Unavailable("writing", "x", "no answer")
    for sent in range(1, 6):
        source.status = NodeDeviceStatus(total=sent)
        await sync.visit()
    sync.updated(an_object(5))
    assert edits(caplog) == 0
    sync.updated(an_object(total))
    assert edits(caplog) == is_edit
