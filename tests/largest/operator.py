"""The largest input that each entrance of the operator accepts, given to the code behind it; see agent.py."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, cast

from nodedevice_api import names
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.memory_bounds import MOST_OF_NODE
from nodedevice_operator.informers.store import Cache, Stores
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES, Cluster, Kind
from nodedevice_operator.kube.requests import _MOST_PAGE_BYTES, PAGE
from nodedevice_operator.objects.shared_slice import MOST_DRIVERS, SharedSlice, by_driver
from nodedevice_operator.shared_slices import MOST_SLICES, SHARED_SLICES, SliceStore

from tests.fakes.operator.operator_model import node_device
from tests.largest.node import Scenario, beat
from tests.unit.operator.reconcile.bench import held, new_bench

# What the API server stores of one object.
_MOST_OBJECT_BYTES: Final = 1_500_000
# Of a slice; its attributes are more.
_MOST_DEVICES: Final = 128
_VERSION: Final = {"resourceVersion": "5", "uid": "u", "generation": 1}


async def events_of_watches(folder: Path) -> AsyncIterator[None]:
    """One object of each kind that is as long as the API server stores it."""
    lines = [
        (kind, _event(body)) for kind, body in ((NODE_DEVICES, _devices()), (NODES, _node()), (POD_DEVICES, _pod()))
    ]
    cache, nobody = Cache(), cast(Any, None)
    yield
    for kind, line in lines:
        await beat()
        await Informer(kind, cache, nobody, nobody)._take(line)
        assert cache.stores[kind.name].by_key


async def pages_of_lists(folder: Path) -> AsyncIterator[None]:
    """As many octets as a page may have."""
    pages: list[tuple[Kind[Any], bytes]] = [
        (kind, _page(kind, body)) for kind, body in ((NODE_DEVICES, _devices(16_000)), (NODES, _node(140)))
    ]
    cache = Cache()
    yield
    for kind, data in pages:
        async for page in Cluster(_Answering(data)).pages(kind):
            await beat()
            cache.stores[kind.name].replace(page.records, 5)
        assert len(cache.stores[kind.name].by_key) == PAGE


class _Answering(Client):
    """Answers each request with the same octets."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def request(self, *args: Any, **options: Any) -> bytes:
        return self._data


async def slices_of_no_node(folder: Path) -> AsyncIterator[None]:
    """Slices: a page that is as long as one may be, one slice that is as long as they get, and as many as are kept."""
    data, line = _page(SHARED_SLICES, _slice(13)), _event(_slice(_MOST_DEVICES))
    store = SliceStore()
    stores = Stores({SHARED_SLICES.name: store}, ("slices",))
    many = [SharedSlice(f"s{n}", f"uid-{n}", 1, f"d{n % 100}.example.com", 1) for n in range(MOST_SLICES)]
    nobody = cast(Any, None)
    yield
    async for page in Cluster(_Answering(data)).pages(SHARED_SLICES):
        await beat()
        store.replace(page.records, 5)
    await beat()
    await Informer(SHARED_SLICES, stores, nobody, nobody)._take(line)
    await beat()
    store.replace(many, 6)
    await beat()
    assert len(by_driver(store.values())) == MOST_DRIVERS + 1


async def a_node_of_many_objects(folder: Path) -> AsyncIterator[None]:
    """More NodeDevices than count, each with allocations, which are reconciled and call for nothing."""
    bench = await new_bench()
    records = [
        node_device(
            f"example.com/r{number}", uid=f"nd-{number}", available=1, allocations=(held("a", uid=f"u{number % 100}"),)
        )
        for number in range(MOST_OF_NODE + 64)
    ]
    await bench.settle(*records)
    for _ in range(8):
        await bench.reconcile()
    yield
    for record in records[:64]:
        await beat()
        bench.cache.node_devices.put(record)
    await beat()
    await bench.reconcile()


def _event(body: dict[str, Any]) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": body}).encode()


def _page(kind: Kind[Any], body: dict[str, Any]) -> bytes:
    items = [{**body, "metadata": {**body["metadata"], "name": f"n{n}", "uid": f"u{n}"}} for n in range(PAGE)]
    data = json.dumps({"metadata": {"resourceVersion": "5"}, "items": items}).encode()
    assert _MOST_PAGE_BYTES * 0.5 < len(data) <= _MOST_PAGE_BYTES, len(data)
    return data


def _devices(octets: int = _MOST_OBJECT_BYTES) -> dict[str, Any]:
    """A NodeDevice of that length, most of it devices."""
    device = {
        "id": "x" * 100,
        "healthy": False,
        "reason": "Broken",
        "message": "m" * 100,
        "attributes": {"a": "b" * 80},
    }
    number = octets // (len(json.dumps(device)) + 6)
    devices = [{**device, "id": f"{index:0100}"} for index in range(number)]
    body = _small()
    body["status"]["devices"] = devices
    return body


def _slice(devices: int) -> dict[str, Any]:
    attributes = {f"attribute-{n}": {"string": "v" * 64} for n in range(12)}
    spec = {"driver": "net.example.com", "allNodes": True}
    spec |= {"devices": [{"name": f"nic-{n}", "attributes": attributes} for n in range(devices)]}
    return {"metadata": {"name": "s", **_VERSION}, "spec": spec}


def _small() -> dict[str, Any]:
    return {
        "metadata": {"name": names.node_device_name("n", "example.com/r"), **_VERSION},
        "spec": {"nodeName": "n", "resourceName": "example.com/r"},
        "status": {"total": 1, "healthy": 1, "available": 1, "conditions": []},
    }


def _node(resources: int = 20_000) -> dict[str, Any]:
    numbers = {f"example.com/resource-{number:05}": "4" for number in range(resources)}
    fields: Any = {"f:status": {"f:capacity": {f"f:{name}": {} for name in list(numbers)[: resources // 2]}}}
    entry = {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}
    metadata = {"name": "n", **_VERSION, "managedFields": [entry]}
    return {"metadata": metadata, "status": {"capacity": numbers, "allocatable": numbers}}


def _pod() -> dict[str, Any]:
    containers = [{"name": f"c{number}", "devices": [{"id": "d" * 60}] * 20} for number in range(600)]
    return {
        "metadata": {"name": "p", "namespace": "n", **_VERSION},
        "spec": {"nodeName": "n", "podUID": "u"},
        "status": {"containers": containers},
    }


SCENARIOS: Final[tuple[Scenario, ...]] = (events_of_watches, pages_of_lists, slices_of_no_node, a_node_of_many_objects)
