"""NodeDevices of plugins that are gone: a deletion sticks, and makes room for one that was too many."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from nodedevice_agent import metrics
from nodedevice_agent.delivery.record_only import RecordOnly
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.kube import publisher as publisher_module
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import NodeDeviceStatus
from prometheus_client import generate_latest

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import Scenario
from tests.unit.node_agent.kube.one_object import GPU, OTHER, PATIENCE_SECONDS, FakeCluster
from tests.unit.node_agent.kube.one_object import cluster as cluster
from tests.unit.node_agent.kube.status_source import FixedStatus, ManagerOnly


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

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        assert resource_name in self._host.manager.resources
        self.made += 1
        return super().status_maker(resource_name, observed, wall_time)

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


class ManyObjects(FakeCluster):
    """Objects by name, each of which exists until its watch reports that it was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[str] = []
        self.deleted: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def watch(
        self, kind: type[Any], fields: Mapping[str, str], version: str, seconds: int, reading: Any = None
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
