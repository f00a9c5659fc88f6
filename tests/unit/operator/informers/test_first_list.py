"""Lists: a first one may end early, no node is enqueued before all kinds are complete, and a later one finds what is gone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from nodedevice_kube.api_errors import Unavailable
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, Kind, Listed
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.informers.watched import Watched


class _Pages(ClusterModel):
    """Serves these lists, page by page; None: the API server fails there."""

    def __init__(self, *lists: list[Listed[NodeDeviceRecord] | None]) -> None:
        super().__init__()
        self.lists = list(lists)

    async def pages(self, kind: Kind[Any]) -> AsyncIterator[Listed[Any]]:
        for page in self.lists.pop(0):
            if page is None:
                raise Unavailable("list", kind.name, "too busy", 429)
            yield page


def page(version: int, **available: int) -> Listed[NodeDeviceRecord]:
    """Of these nodes' objects, each written at the version of the list."""
    fields = ((f"node-{name}", number) for name, number in available.items())
    records = [node_device(node=node, uid=f"of-{node}", available=n, resource_version=version) for node, n in fields]
    return Listed(records, version)


def numbers(watched: Watched) -> dict[str, int]:
    return {held.node: held.available for held in watched.cache.node_devices.values()}


async def first_list(watched: Watched, *lists: list[Listed[NodeDeviceRecord] | None]) -> None:
    cluster = _Pages(*lists)
    # the other kinds are complete, so that only this list is missing
    watched.cache.nodes.replace([], 1)
    watched.cache.pod_devices.replace([], 1)
    informer = Informer(NODE_DEVICES, watched.cache, cluster, watched.client)
    await informer.refresh()
    assert (watched.cache.is_complete, cluster.lists) == (True, [])


@pytest.mark.parametrize(("version", "restores"), [(110, 0), (50, 1)], ids=["again", "by a restored server"])
async def test_a_first_list_that_ended_early_leaves_nothing_that_is_gone_at_the_next_attempt(
    watched: Watched, version: int, restores: int
) -> None:
    begun: list[Listed[NodeDeviceRecord] | None] = [page(100, a=1, b=2), None]
    await first_list(watched, begun, [page(version, a=7), page(version, c=3)])
    assert (numbers(watched), watched.cache.restores) == ({"node-a": 7, "node-c": 3}, restores)


async def test_nodes_are_enqueued_once_all_lists_are_complete_and_then_as_a_list_changes_them(watched: Watched) -> None:
    cache, enqueued = watched.cache, list[str]()
    cache.on_list = enqueued.append
    cache.pod_devices.replace([], 1)
    later = page(120, b=2, d=4)
    odd: Listed[NodeDeviceRecord] = Listed([], 130, frozenset({node_device(node="node-b").name}))
    lists = _Pages([page(100, a=1, b=2), page(100, c=3)], [later], [odd])
    devices = Informer(NODE_DEVICES, cache, lists, watched.client)
    await devices.refresh()
    assert enqueued == []
    await Informer(NODES, cache, ClusterModel(), watched.client).refresh()
    assert sorted(enqueued) == ["node-a", "node-b", "node-c"]
    enqueued.clear()
    await devices.refresh()
    assert sorted(enqueued) == ["node-a", "node-c", "node-d"], "gone, gone and new"
    # one that cannot be decoded is not gone
    await devices.refresh()
    assert enqueued[3:] == ["node-d"]
    assert cache.node_devices.nodes() == {"node-b"}
