"""How slices of the own node reach what is published: a driver without pause, lists after a break, clusters without the kind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES
from nodedevice_agent.dra import observer, pools, slices
from nodedevice_agent.dra.served import GONE_SECONDS
from nodedevice_agent.dra.slices import ResourceSliceObject
from nodedevice_kube.api_errors import ApiError, Forbidden, Invalid, Unauthorized, Unavailable

from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.observed import Node
from tests.unit.node_agent.dra.published import DRIVER, KEY, NAME, NODE, device, published, row

pytestmark = virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_slices_of_the_own_node_are_published_as_they_change(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        assert node.api.fields == [{"spec.nodeName": NODE}]
        assert (node.devices(), {*node.published}) == (["a"], {NAME})
        node.published.clear()
        await node.put("s", "a", "b", version=2)
        assert (node.devices(), node.published) == (["a", "b"], [NAME])
        await node.remove("s")
        await later(GONE_SECONDS)
        assert node.devices() == []
        assert node.served.offered(NAME, asyncio.get_running_loop().time()) is not None


async def test_without_a_change_nothing_is_published(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    await node.put("s", "a")
    async with node.running():
        node.published.clear()
        await later(600)
        assert node.published == []
        # ... nor where all are listed again
        node.watch.synced([*node.api.slices.values()], 2)
        await later(600)
        assert (node.published, caplog.records) == ([], [])


NET = ("net.example.com", "rack-1")


async def test_a_pool_that_is_not_of_this_node_is_in_no_nodedevice_whoever_has_its_devices(node: Node) -> None:
    other = ("fabric.example.com", "all")
    node.api.beyond = {NET[0], other[0]}
    await node.put("s", "a")
    node.held.rows[NET] = [row("p", "port-0")]
    async with node.running():
        node.observer.held_known()
        await later(GONE_SECONDS + 1)
        # another pod, later, has one of another pool
        node.held.rows[other] = [row("q", "port-0")]
        node.observer.held_changed(other)
        await later(GONE_SECONDS + 1)
        assert ({*node.published}, {*node.served.resources}) == ({NAME}, {NAME})
        # each pool is asked about once
        assert node.api.asked_beyond == [NET[0], other[0]]
        # and again for another pod, once nobody has any
        node.held.rows.clear()
        node.observer.held_changed(NET)
        node.held.rows[NET] = [row("r", "port-1")]
        node.observer.held_changed(NET)
        await later(1)
        assert len(node.api.asked_beyond) == 3


@pytest.mark.parametrize(
    "error", [None, Forbidden("listing", "x", "no", 403), Invalid("listing", "x", "no such field", 400)]
)
async def test_any_other_pool_that_only_pods_tell_of_is_gone(node: Node, error: ApiError | None) -> None:
    async with node.running():
        node.api.fails = error
        node.held.rows[NET] = [row("p", "port-0")]
        node.observer.held_changed(NET)
        assert node.published == []
        await later(1)
        assert {*node.served.resources} == {f"{NET[0]}/{NET[1]}"} == {*node.published}
        node.observer.held_changed(NET)
        await later(600)
        assert node.api.asked_beyond == [NET[0]]


@pytest.mark.parametrize("error", [Unavailable("listing", "x", "timeout"), Unauthorized("listing", "x", "token", 401)])
async def test_while_the_api_server_does_not_answer_it_is_in_none(node: Node, error: ApiError) -> None:
    async with node.running():
        node.api.fails = error
        node.held.rows[NET] = [row("p", "port-0")]
        node.observer.held_changed(NET)
        await later(60)
        assert {*node.served.resources} == set()
        node.api.fails = None
        await later(60)
        assert {*node.served.resources} == {f"{NET[0]}/{NET[1]}"}


async def test_a_pool_that_was_of_this_node_is_not_asked_about(node: Node) -> None:
    await node.put("s", "a")
    node.held.rows[KEY] = [row("p", "a")]
    async with node.running():
        node.observer.held_known()
        await node.remove("s")
        await later(GONE_SECONDS + 1)
        node.observer.held_changed(KEY)
        await later(1)
        assert (node.api.asked_beyond, {*node.served.resources}) == ([], {NAME})


async def test_after_a_break_what_is_gone_ends_beside_drivers_without_pause(node: Node) -> None:
    await node.put("gone", "a")
    async with node.running():
        for version in range(1, 300):
            await node.put("s0", "b", driver="s0.example.com", generation=version, version=version)
            if version > 95:
                # when that of the other one is not read
                await node.put("s1", "b", driver="s1.example.com", generation=version, version=version)
            if version == 200:
                # ... which the watch has missed
                del node.api.slices["gone"]
                node.watch.synced([*node.api.slices.values()], 2)
            await later(0.1)
        assert node.devices() == []


async def test_of_many_generations_a_few_are_decoded_and_the_last_one_counts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = slices.slice_of

    def slice_of(found: ResourceSliceObject, **more: Any) -> Any:
        made = decode(found, **more)
        decoded.append(made.generation)
        return made

    monkeypatch.setattr(observer, "slice_of", slice_of)
    await node.put("s", "a")
    await node.put("other", "b", driver="nic.example.com")
    async with node.running():
        for generation in range(2, 302):
            await node.put("s", f"d{generation}", generation=generation, version=generation)
            await later(0.1)
            if generation == 200:
                # another driver's are not held up
                await node.put("other", "c", driver="nic.example.com", version=2)
                assert node.devices(("nic.example.com", NODE)) == ["c"]
        await later(2)
        assert node.devices() == ["d301"]
        assert len(decoded) <= 2 + 1 + observer.DECODED_AT_ONCE + 34


async def test_what_a_list_lacks_is_gone_and_what_came_since_is_not(node: Node) -> None:
    await node.put("s", "a")
    await node.put("t", "b", pool="other")
    async with node.running():
        node.watch.synced([node.api.slices["s"]], 2)
        # both before the list was dealt with
        node.watch.updated(published("u", ["c"], pool="third"))
        await later(0.1)
        assert [node.devices((DRIVER, pool)) for pool in (NODE, "other", "third")] == [["a"], [], ["c"]]
        node.watch.synced([node.api.slices["s"]], 3)
        node.watch.deleted(node.api.slices["s"])
        await later(0.1)
        assert node.devices() == []


async def test_a_slice_that_cannot_be_decoded_is_as_good_as_none(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        node.watch.updated(ResourceSliceObject.known_by_name(published("s", version=2).metadata))
        await later(0.1)
        assert [*node.served.pools] == []


async def test_a_list_goes_before_what_a_watch_has_shown(node: Node) -> None:
    """Both before a turn: the watch goes on from the list."""
    await node.put("s", "a")
    async with node.running():
        node.watch.deleted(node.api.slices["s"])
        node.watch.updated(published("s", ["b"], version=2))
        node.watch.synced([node.api.slices["s"]], 3)
        await later(0.1)
        assert node.devices() == ["a"]


async def test_a_slice_of_another_node_is_ignored_and_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    await node.put("s", "a", node="node-b", pool="node-b")
    async with node.running():
        await node.put("t", "b", node=None)
        await node.put("u", "c", driver="nodedevice.io")
        await node.put("v", "d", driver="Not_a.name")
        assert node.served.resources == {}
        message = "ResourceSlices of other nodes ignored: the API server does not apply the field selector"
        assert log_lines(caplog.records) == [("WARNING", message, {"error": "the slice s is of the node 'node-b'"})]
        # one that moves there is gone here
        await node.put("w", "e")
        assert node.devices() == ["e"]
        await node.put("w", "e", node="node-b", version=2)
        assert node.devices() == []


async def test_too_many_slices_of_a_driver_are_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(200):
        await node.put(f"s{n:03}", f"d{n:03}", count=200)
    await node.put("other", "x", driver="nic.example.com")
    async with node.running():
        await later(1)
        assert len(node.devices()) == 128
        assert node.devices(("nic.example.com", NODE)) == ["x"]
        message = "ResourceSlices ignored: this node or one of its drivers has too many"
        assert log_lines(caplog.records) == [("WARNING", message, {"error": f"the slice s128 of the driver {DRIVER}"})]
        # where one leaves, the next list brings another
        await node.remove("s000")
        node.watch.synced([*node.api.slices.values()], 2)
        await later(1)
        assert ("d128" in node.devices(), len(node.devices())) == (True, 128)


async def test_attributes_without_room_are_logged_once_whichever_slice_changes(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pools, "MAX_ATTRIBUTES", 2)
    many = device("d", attributes={"a": 1, "b": 2})
    for n in range(3):
        await node.put(f"s{n}", many, pool=f"p{n}")
    async with node.running():
        for version in range(2, 6):
            for n in range(3):
                await node.put(f"s{n}", {**many, "name": f"d{version}"}, pool=f"p{n}", version=version)
            await later(2)
        shown = [len(each.attributes) for pool in node.served.pools.values() for each in pool.devices.values()]
        assert sorted(shown) == [0, 0, 2]
        message = "attributes of devices are not shown: the ResourceSlices of this node have too many"
        assert log_lines(caplog.records) == [("WARNING", message, {"error": "1 slices are shown without any"})]
        for n in (0, 1):
            await node.remove(f"s{n}")
        await node.put("s2", {**many, "name": "last"}, pool="p2", version=9)
        assert node.served.pools.bare == set()


async def test_a_slice_whose_counters_have_no_room_is_not_read_until_a_list_with_some(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_COUNTERS", 2)
    sets = [{"name": "gpu", "counters": {"memory": {"value": 1}, "cores": {"value": 1}}}]
    async with node.running():
        await node.put("s0", sharedCounters=sets)
        await node.put("s1", "a", pool="other", sharedCounters=sets)
        await node.put("s2", "b", pool="third")
        other = node.served.pools.get((DRIVER, "other"))
        assert other is not None
        assert (other.unread, other.is_complete, node.devices((DRIVER, "third"))) == (("s1",), False, ["b"])
        await node.remove("s0")
        node.watch.synced([published("s1", ["a"], pool="other", sharedCounters=sets)], 2)
        await later(1)
        assert node.devices((DRIVER, "other")) == ["a"]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["it was deleted", "a list lacked it"])
async def test_a_slice_that_is_in_the_next_list_again_is_shown(node: Node, is_deleted: bool) -> None:
    await node.put("s", "a")
    # which is ignored all the time
    await node.put("other", "b", node="node-b")
    async with node.running():
        listed = [*node.api.slices.values()]
        if is_deleted:
            await node.remove("s")
        else:
            node.watch.synced([], 2)
            await later(0.1)
        assert node.devices() == []
        node.watch.synced(listed, 2)
        await later(0.1)
        assert node.devices() == ["a"]


async def test_a_slice_that_comes_again_is_a_new_one_whose_first_changes_are_decoded_at_once(node: Node) -> None:
    async with node.running():
        for version in range(2 * observer.DECODED_AT_ONCE):
            await node.put("s", f"d{version}", version=version)
        assert node.devices() == [f"d{observer.DECODED_AT_ONCE - 1}"]
        # while it waits others do not
        await node.put("t", "b", pool="other")
        assert node.devices((DRIVER, "other")) == ["b"]
        await node.remove("s")
        await node.put("s", "again", version=99)
        assert node.devices() == ["again"]


async def test_a_pool_that_lost_its_place_has_one_as_soon_as_there_is_room(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        node.served.places.others = lambda: {f"example.com/r{n}": True for n in range(MAX_NAMES)}
        node.observer.displace([NAME], "example.com/gpu")
        # its NodeDevice is deleted
        assert node.served.forget(NAME)
        await later(60)
        assert (node.served.resources, node.served.without_place) == ({}, {KEY})
        node.served.places.others = dict
        await later(60)
        assert [*node.served.resources] == [NAME]
