"""Bounds on what one node's token can store in the operator: the oldest objects count."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from nodedevice_operator.informers import memory_bounds
from nodedevice_operator.informers.memory_bounds import Bounds
from nodedevice_operator.informers.store import Store
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.fakes.operator.operator_model import node_device


def record(number: int, version: int = 1, weight: int = 0, node: str = "node-a", **more: Any) -> NodeDeviceRecord:
    created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    fields = {"uid": f"uid-{node}-{number}", "created": created, "weight": weight, **more}
    return node_device(f"example.com/r{number}", node=node, resource_version=version, **fields)


def numbers(records: Iterable[NodeDeviceRecord]) -> list[int]:
    return sorted(int(each.resource.rpartition("/r")[2]) for each in records)


def of(store: Store[str, NodeDeviceRecord], node: str = "node-a") -> list[int]:
    return numbers(store.of_node(node))


@pytest.fixture
def store() -> Store[str, NodeDeviceRecord]:
    return Store(Bounds(memory_bounds.without_lists, most_bytes=1000, most_objects=40))


def test_the_oldest_count_whatever_comes_after_them(store: Store[str, NodeDeviceRecord]) -> None:
    order = list(range(100))
    random.Random(1).shuffle(order)
    store.put(record(50))
    assert of(store) == [50]
    for number in order:
        store.put(record(number))
    store.put(record(7, node="node-b"))
    assert of(store) == list(range(40))
    assert (store.left_out("node-a"), store.left_out("node-b"), store.left_out("node-c")) == (60, 0, 0)
    assert (len(store.by_key), store.count("node-a")) == (101, 100), "all are known: what is gone must be noticed"
    # one that goes makes room for the next
    gone = record(3)
    store.remove(gone.key, gone.uid)
    assert of(store) == [*range(3), *range(4, 41)]
    # and one that is made again is the youngest
    store.put(record(0, version=9, uid="again", created="2027-01-01T00:00:00Z"))
    assert of(store) == [1, 2, *range(4, 42)]
    for number in range(42, 100):
        found = record(number)
        store.remove(found.key, found.uid)
    assert store.left_out("node-a") == 1


def weight_of(store: Store[str, NodeDeviceRecord], node: str = "node-a") -> int:
    return sum(each.weight for each in store.values() if each.node == node)


def test_what_they_weigh_is_bounded_after_any_changes(store: Store[str, NodeDeviceRecord]) -> None:
    rng = random.Random(2)
    for version in range(2, 3000):
        number, node = rng.randrange(60), rng.choice(["node-a", "node-b"])
        made = record(number, version, rng.choice([0, 90, 300, 900]), rng.choice(["node-a", node]))
        if rng.random() < 0.2:
            store.remove(made.key, made.uid)
        else:
            store.put(made)
        assert max(weight_of(store), weight_of(store, "node-b")) <= 1000
    for each in store.values():
        store.remove(each.key, each.uid)
    store.put(record(70, weight=700))
    # a restored server changes no sum
    store.expire()
    store.put(record(70, weight=600))
    store.put(record(71, weight=400))
    assert weight_of(store) == 1000, "as much as may be"


async def test_those_that_count_of_all_nodes(store: Store[str, NodeDeviceRecord]) -> None:
    for number in range(100):
        store.put(record(number))
    store.put(record(7, node="node-b"))
    assert numbers(store.counting()) == sorted([*range(40), 7])
    assert [store.counts(record(number)) for number in (0, 39, 40, 99)] == [True, True, False, False]
    assert store.counts(record(7, node="node-b"))
    assert numbers([each async for some in store.counting_in_steps() for each in some]) == sorted([*range(40), 7])
