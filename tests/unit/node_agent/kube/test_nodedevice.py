"""When a NodeDevice's status is written, and when a failed write is retried. In process, without a server."""

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.kept_status import KeptStatus
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject, OwnedMetadata
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.write_budget import (
    OBJECT_WRITES_AT_ONCE,
    OBJECT_WRITES_PER_SECOND,
)
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_kube.api_errors import Invalid, Unavailable

from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario
from tests.unit.node_agent.kube.one_object import GPU, OWNED, PATIENCE_SECONDS, FakeCluster, published
from tests.unit.node_agent.kube.one_object import cluster as cluster
from tests.unit.node_agent.kube.status_source import FixedStatus


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Unavailable("writing", "x", "no answer"), id="unreachable"),
        pytest.param(Invalid("writing", "x", "too big", 413), id="refused"),
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
        publisher.start(tasks, cast(PluginHost, SimpleNamespace(manager=scenario.manager, unsaved="")), backend)
    publisher.are_pods_known = are_pods_known
    status = publisher.status_maker(GPU, NodeDeviceStatus(), "2026-01-01T00:00:00Z")
    assert (status is not None) is is_written


async def test_a_reconnected_watch_causes_one_attempt(cluster: FakeCluster) -> None:
    cluster.fails = Unavailable("writing", "x", "no answer")
    async with published(cluster) as made:
        for attempts in range(1, 5):
            await cluster.until_attempts(attempts)
            # what changes meanwhile does not shorten the pause
            made.touch()
            for _ in range(20):
                await asyncio.sleep(0)
            assert cluster.attempts == attempts
            cluster.lose_watch()


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
    made.known_version, made._ours = 50, (KeptStatus({"total": 1, "conditions": []}),)
    made.synced([stored(version, "listed")], as_of)
    assert publisher.cordoned_ids == cordoned
    assert [record.getMessage() for record in caplog.records] == []
