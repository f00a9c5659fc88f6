"""When lists are read, and that nobody is judged before they are whole."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from nodedevice_operator.errors import Unavailable
from nodedevice_operator.informers.relist import KINDS, Sync
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.api import Listed
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.operator_model import NIC, node_device


class Touched:
    """Who was touched, as it comes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, node: str) -> None:
        self._queue.put_nowait(node)

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self._queue.get()

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


@pytest.fixture
async def touched() -> Touched:
    return Touched()


@pytest.fixture
def cluster() -> ClusterModel:
    record = node_device(node="node-b", resource_version=1)
    return ClusterModel(node_devices={record.name: record})


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
async def sync(cache: Cache, cluster: ClusterModel, touched: Touched) -> AsyncIterator[Sync]:
    made = Sync(cache, cluster, touched)
    async with running(made.work()):
        yield made


@contextlib.asynccontextmanager
async def running(work: object) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_nobody_is_touched_before_all_lists_are_whole_and_everybody_then(
    sync: Sync, cache: Cache, touched: Touched, cluster: ClusterModel
) -> None:
    cluster.failures["list_pod_devices"] = [Unavailable("get", "poddevices", "later", 503)]
    for kind in KINDS:
        sync.begun(kind)
    assert {await touched.next(), await touched.next()} == {"node-a", "node-b"}
    assert cache.is_complete
    assert touched.is_empty


async def test_a_watch_that_began_anew_finds_what_is_gone(
    sync: Sync, cache: Cache, touched: Touched, cluster: ClusterModel
) -> None:
    for kind in KINDS:
        sync.begun(kind)
    await touched.next()
    await touched.next()
    cluster.node_devices.clear()
    added = node_device(NIC, node="node-c", resource_version=cluster.version + 1)
    cluster.node_devices[added.name] = added
    sync.begun("nodedevices")
    assert {await touched.next(), await touched.next()} == {"node-b", "node-c"}
    assert cache.node_devices.nodes() == {"node-c"}


async def test_what_is_in_a_list_and_not_understood_is_not_gone(
    sync: Sync, cache: Cache, touched: Touched, cluster: ClusterModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        sync.begun(kind)
    await touched.next()
    await touched.next()
    left_out = frozenset(cluster.node_devices)

    async def with_an_odd_one() -> Listed[NodeDeviceRecord]:
        return Listed([node_device(NIC, node="node-c", resource_version=200)], 300, left_out)

    monkeypatch.setattr(cluster, "list_node_devices", with_an_odd_one)
    sync.begun("nodedevices")
    assert await touched.next() == "node-c"
    assert touched.is_empty
    assert cache.node_devices.nodes() == {"node-b", "node-c"}
