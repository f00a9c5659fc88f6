"""Lists: no node is reconciled before all of them are complete, and what is gone is found by the next one."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from nodedevice_kube.api_errors import Unavailable
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.lists import KINDS, NODE_DEVICES, Kind, Listed
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingQueue
from tests.fakes.operator.operator_model import NIC, node_device


@pytest.fixture
async def touched() -> RecordingQueue:
    """Nodes about which a change is notified, in order."""
    return RecordingQueue()


@pytest.fixture
def cluster() -> ClusterModel:
    record = node_device(node="node-b", resource_version=1)
    return ClusterModel(node_devices={record.name: record})


@pytest.fixture
def cache() -> Cache:
    return Cache()


@dataclass
class Lists:
    """Informers that list and never watch."""

    cache: Cache
    cluster: ClusterModel

    async def list(self, *kinds: Kind[Any]) -> None:
        for kind in kinds:
            unused: Any = None
            await Informer(kind, self.cache, self.cluster, unused).refresh()


@pytest.fixture
async def lists(cache: Cache, cluster: ClusterModel, touched: RecordingQueue) -> Lists:
    cache.on_list = touched.enqueue
    return Lists(cache, cluster)


async def test_no_node_is_enqueued_before_all_lists_are_complete_and_every_node_then(
    lists: Lists, cache: Cache, touched: RecordingQueue, cluster: ClusterModel
) -> None:
    cluster.failures["list poddevices"] = [Unavailable("get", "poddevices", "later", 503)]
    await lists.list(*KINDS)
    assert {await touched.next(), await touched.next()} == {"node-a", "node-b"}
    assert cache.is_complete
    assert touched.is_empty


async def test_a_later_list_finds_what_is_gone(
    lists: Lists, cache: Cache, touched: RecordingQueue, cluster: ClusterModel
) -> None:
    await lists.list(*KINDS)
    await touched.next()
    await touched.next()
    cluster.node_devices.clear()
    added = node_device(NIC, node="node-c", resource_version=cluster.version + 1)
    cluster.node_devices[added.name] = added
    await lists.list(NODE_DEVICES)
    assert {await touched.next(), await touched.next()} == {"node-b", "node-c"}
    assert cache.node_devices.nodes() == {"node-c"}


async def test_an_object_in_a_list_that_cannot_be_decoded_is_not_gone(
    lists: Lists, cache: Cache, touched: RecordingQueue, cluster: ClusterModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lists.list(*KINDS)
    await touched.next()
    await touched.next()
    undecoded = frozenset(cluster.node_devices)

    async def with_an_odd_one(_: Kind[Any]) -> AsyncIterator[Listed[NodeDeviceRecord]]:
        yield Listed([node_device(NIC, node="node-c", resource_version=200)], 300, undecoded)

    monkeypatch.setattr(cluster, "pages", with_an_odd_one)
    await lists.list(NODE_DEVICES)
    assert await touched.next() == "node-c"
    assert touched.is_empty
    assert cache.node_devices.nodes() == {"node-b", "node-c"}
