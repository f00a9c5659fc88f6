"""What is kept of the cluster: the newest of each object, and whether it is everything."""

from dataclasses import replace
from typing import Any

from nodedevice_operator.capacity.decide import contradictions
from nodedevice_operator.informers.memory_bounds import MOST_BYTES_OF_NODE
from nodedevice_operator.informers.store import Cache, Store
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.poddevice import PodDeviceRecord

from tests.fakes.operator.operator_model import NIC, node_device
from tests.unit.operator.objects.records import held


def at(version: int, **fields: Any) -> NodeDeviceRecord:
    return node_device(resource_version=version, **fields)


def store_with(*records: NodeDeviceRecord) -> Store[str, NodeDeviceRecord]:
    store: Store[str, NodeDeviceRecord] = Store()
    for record in records:
        store.put(record)
    return store


def test_only_what_is_newer_and_different_is_a_change() -> None:
    store = store_with(at(5, available=1))
    assert not store.put(at(6, available=1))
    assert store.put(at(7, available=2))
    assert not store.put(at(6, available=3))
    assert not store.put(at(7, available=3))
    assert [record.available for record in store.values()] == [2]


def test_an_object_that_is_gone_does_not_come_back_and_its_end_does_not_hit_the_successor() -> None:
    store = store_with(at(5))
    assert store.remove(at(5).key, at(5).uid)
    assert not store.put(at(9))
    assert store.values() == []
    assert store.put(at(10, uid="its-successor"))
    assert not store.remove(at(5).key, at(5).uid)
    assert [record.uid for record in store.values()] == ["its-successor"]


def test_a_list_takes_away_what_it_lacks_unless_that_is_newer() -> None:
    other = at(5, available=1)
    newer = node_device(NIC, node="node-b", resource_version=30)
    store = store_with(other, newer)
    third = node_device(node="node-c", resource_version=8, uid="uid-c")
    assert not store.is_complete
    assert store.replace([third], 20) == {"node-a", "node-c"}
    assert store.is_complete
    assert {record.node for record in store.values()} == {"node-b", "node-c"}
    assert (store.nodes(), store.of_node("node-a")) == ({"node-b", "node-c"}, [])


def test_what_a_list_repeats_stays_and_what_it_lacks_goes() -> None:
    held = [at(5, node=f"node-{name}", uid=f"uid-{name}") for name in "abc"]
    store = store_with(*held)
    changed = store.replace([at(7, node="node-b", uid="uid-b", available=3)], 20, stored={"uid-a"})
    assert changed == {"node-b", "node-c"}
    assert {(record.node, record.resource_version) for record in store.values()} == {("node-a", 5), ("node-b", 7)}
    assert store.of_uids({"uid-a"}) == [held[0]]


def test_a_list_of_a_restored_server_replaces_what_is_newer() -> None:
    def on(node: str, version: int, available: int = 1) -> NodeDeviceRecord:
        return at(version, node=node, uid=f"uid-{node}", available=available)

    store = store_with(on("node-a", 50), on("node-b", 60), on("node-c", 70), on("node-d", 80))
    store.remove(on("node-c", 70).key, "uid-node-c")
    store.expire()
    # node-a had other numbers then, node-c was not gone, and node-d was not there
    listed = [on("node-a", 1, 4), on("node-b", 21), on("node-c", 22)]
    assert store.replace(listed, 30) == {"node-a", "node-c", "node-d"}
    versions = {record.node: record.resource_version for record in store.values()}
    assert versions == {"node-a": 1, "node-b": 21, "node-c": 22}


def test_an_object_that_moves_to_another_node_leaves_the_first() -> None:
    store: Store[tuple[str, str], PodDeviceRecord] = Store()
    here = PodDeviceRecord("default", "pod-a", "uid-1", 1, "node-a", "pod-1", "")
    store.put(here)
    store.put(replace(here, uid="uid-2", resource_version=2, node="node-b"))
    assert store.of_node("node-a") == []
    assert store.is_about("node-b")
    assert not store.is_about("node-a")


def test_the_cache_names_what_it_waits_for() -> None:
    cache = Cache()
    assert len(cache.waits_for()) == 3
    cache.nodes.replace([], 1)
    cache.node_devices.replace([at(1)], 1)
    assert (cache.is_complete, cache.waits_for()) == (False, ("the list of PodDevices is not complete",))
    cache.pod_devices.replace([], 1)
    assert (cache.is_complete, cache.names_of_nodes()) == (True, frozenset({"node-a"}))
    assert cache.knows("node-a")
    assert not cache.knows("node-b")


class TestNotUnderstood:
    """Objects that are there, and of which nothing is known."""

    def test_what_a_list_left_out_is_not_gone(self) -> None:
        odd, gone = at(5, node="a"), at(5, node="b")
        store = store_with(odd, gone)
        assert store.replace([], 9, {odd.key}) == {"b"}
        assert store.get(odd.key) == odd
        assert store.is_invalid(odd.key)
        assert not store.is_invalid(gone.key)

    def test_nothing_is_gone_where_it_is_not_known_what_was_left_out(self) -> None:
        record = at(5)
        store = store_with(record)
        assert store.replace([], 9, {None}) == frozenset()
        assert (store.get(record.key), store.is_complete) == (record, True)

    def test_it_is_a_change_when_it_is_understood_again(self) -> None:
        store = store_with(at(5))
        assert store.mark_invalid(at(5).key)
        assert not store.mark_invalid(at(5).key)
        assert not store.put(at(5))
        assert store.is_invalid(at(5).key)
        assert store.put(at(6))
        assert not store.is_invalid(at(5).key)
        assert not store.put(at(7))
        store.mark_invalid(at(5).key)
        assert store.replace([at(8)], 9) == {at(5).node}

    def test_its_end_is_a_change_though_it_was_never_known(self) -> None:
        store = store_with()
        store.mark_invalid("odd")
        assert store.remove("odd", "uid-odd")
        assert not store.is_invalid("odd")
        store.mark_invalid("odd")
        store.replace([], 9)
        assert not store.is_invalid("odd")


class TestBounds:
    """Of one node only so much is kept."""

    @staticmethod
    def heavy(number: int, node: str = "node-a", **fields: Any) -> NodeDeviceRecord:
        """Four of them are as much as may be kept of a node; the lower the number, the older."""
        more = {"listed": ("gpu-0", "gpu-1"), "total": 2, "allocated": 1, "allocations": (held("gpu-0"),), **fields}
        more |= {"cordoned_ids": frozenset("a"), "cordoned_by": {"a": "alice"}, "weight": MOST_BYTES_OF_NODE // 4}
        more |= {"uid": f"{node}-{number}", "created": f"2026-01-02T03:04:{number:02}Z"}
        return node_device(f"example.com/r{number}", node=node, **more)

    def test_what_is_kept_of_the_newest_is_as_if_their_agent_had_omitted_the_rest(self) -> None:
        store = Cache().node_devices
        for number in (5, 3, 1, 2, 4, 0):
            store.put(self.heavy(number))
        assert {record.resource[-1] for record in store.values() if record.listed} == {*"0123"}
        left = store.get(self.heavy(4).key)
        assert left is not None
        assert (left.allocated, left.devices_omitted, left.allocations_omitted) == (1, 2, 1)
        assert (left.allocations, left.devices, left.waiting, left.cordoned_by) == ((), {}, (), {})
        assert contradictions(left) == ()
        # the same again is no change
        assert not store.put(replace(self.heavy(4), resource_version=2))
        assert store.put(replace(self.heavy(4, available=1), resource_version=3))

    def test_handlers_get_what_is_kept(self) -> None:
        store = Cache().node_devices
        seen: list[NodeDeviceRecord | None] = []
        store.on_update(lambda _, __, now: seen.append(now))
        for number in range(5):
            store.update(self.heavy(number))
        assert seen[-1] == store.get(self.heavy(4).key)
