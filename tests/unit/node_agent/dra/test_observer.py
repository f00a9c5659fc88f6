"""How slices of the own node reach what is published: a driver without pause, lists after a break, clusters without the kind."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.places import MAX_NAMES
from nodedevice_agent.dra import observer, pools, slices
from nodedevice_agent.dra.observer import ASK_SECONDS, DriverObserver, known_names
from nodedevice_agent.dra.served import GONE_SECONDS, WATCH, ServedByDrivers
from nodedevice_agent.dra.slices import PLURAL, ResourceSliceObject
from nodedevice_agent.errors import ApiForbidden, ApiUnreachable
from nodedevice_agent.kube.informer import Watches
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.published import DRIVER, NODE, FakeHeld, Json, device, published
from tests.unit.node_agent.kube.shown_status import MONDAY

FILE_NAME = "dra-pools.json"
NAME = f"{DRIVER}/devices"
KEY = (DRIVER, NODE)
pytestmark = virtual_time


class Api:
    """An API server with these slices, and a Watches of it."""

    def __init__(self) -> None:
        self.cluster = self
        self.kinds = frozenset({PLURAL})
        self.slices: dict[str, ResourceSliceObject] = {}
        self.asked = 0
        self.fields: list[Mapping[str, str]] = []
        self.fails: Exception | None = None
        self.is_stale = False
        self.handler: DriverObserver | None = None

    async def served(self, group_version: str) -> frozenset[str]:
        self.asked += 1
        assert group_version == "resource.k8s.io/v1"
        return self.kinds

    async def catch_up(self, kind: type, fields: Mapping[str, str]) -> str:
        if self.fails is not None:
            raise self.fails
        return "1"

    async def follow(self, name: str, kind: type, fields: Mapping[str, str], handler: DriverObserver) -> None:
        assert (name, kind) == (WATCH, ResourceSliceObject)
        self.fields.append(fields)
        self.handler = handler
        handler.synced([*self.slices.values()], 1)
        try:
            await asyncio.Event().wait()
        finally:
            self.handler = None

    def stale(self) -> frozenset[str]:
        return frozenset({WATCH} if self.is_stale else ())


class Node:
    def __init__(
        self, folder: Path, known: Mapping[tuple[str, str], str] | None = None, *, is_off: bool = False
    ) -> None:
        self.api, self.held, self.file = Api(), FakeHeld(), folder / FILE_NAME
        self.published: list[str] = []
        self.served = ServedByDrivers(NODE, self.held, lambda name: False, known or {}, is_off=is_off)
        watches = cast(Watches, self.api)
        self.observer = DriverObserver(watches, NODE, self.served, self.published.append, self.file)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.observer.run())
        await later(0.1)
        try:
            yield
        finally:
            assert not task.done(), task.exception()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def put(self, name: str, *devices: Json | str, **more: Any) -> None:
        found = published(name, devices, **more)
        self.api.slices[name] = found
        if self.api.handler is not None:
            self.api.handler.updated(found)
        await later(0.01)

    async def remove(self, name: str) -> None:
        found = self.api.slices.pop(name)
        assert self.api.handler is not None
        self.api.handler.deleted(found)
        await later(0.01)

    def devices(self, key: tuple[str, str] = KEY) -> list[str]:
        pool = self.served.pools.get(key)
        return [*pool.devices] if pool is not None else []


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


async def test_without_a_change_nothing_is_done(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        node.published.clear()
        await later(600)
        assert node.published == []
        # ... nor where all are listed again
        assert node.api.handler is not None
        node.api.handler.synced([*node.api.slices.values()], 2)
        await later(600)
        assert node.published == []


# -- a driver without pause -----------------------------------------------------------------------------------------------------


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
    monkeypatch.undo()


async def test_a_turn_is_given_to_others_after_each_slice(node: Node) -> None:
    for n in range(40):
        await node.put(f"s{n}", "a", pool=f"p{n}")
    turns = 0

    async def counting() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with node.running():
        others = asyncio.create_task(counting())
        assert node.api.handler is not None
        before = turns
        for n in range(40):
            node.api.handler.updated(published(f"s{n}", ["a", "b"], pool=f"p{n}", version=2))
        while node.devices((DRIVER, "p39")) != ["a", "b"]:
            await asyncio.sleep(0)
        assert turns - before >= 40
        others.cancel()


# -- lists ----------------------------------------------------------------------------------------------------------------------


async def test_what_a_list_lacks_is_gone_and_what_came_since_is_not(node: Node) -> None:
    await node.put("s", "a")
    await node.put("t", "b", pool="other")
    async with node.running():
        assert node.api.handler is not None
        node.api.handler.synced([node.api.slices["s"]], 2)
        # both before the list was dealt with
        node.api.handler.updated(published("u", ["c"], pool="third"))
        await later(0.1)
        assert [node.devices((DRIVER, pool)) for pool in (NODE, "other", "third")] == [["a"], [], ["c"]]
        node.api.handler.synced([node.api.slices["s"]], 3)
        node.api.handler.deleted(node.api.slices["s"])
        await later(0.1)
        assert node.devices() == []


async def test_a_slice_that_cannot_be_decoded_is_as_good_as_none(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        assert node.api.handler is not None
        node.api.handler.updated(ResourceSliceObject.known_by_name(published("s", version=2).metadata))
        await later(0.1)
        assert node.devices() == []


# -- what is not shown ----------------------------------------------------------------------------------------------------------


async def test_a_slice_of_another_node_is_ignored_and_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    await node.put("s", "a", node="node-b", pool="node-b")
    async with node.running():
        await node.put("t", "b", node=None)
        await node.put("u", "c", driver="nodedevice.io")
        await node.put("v", "d", driver="Not.a.name")
        assert node.served.resources == {}
        assert len([r for r in caplog.records if r.getMessage().startswith("ResourceSlices ignored")]) == 1
        # one that moves there is gone here
        await node.put("w", "e")
        assert node.devices() == ["e"]
        await node.put("w", "e", node="node-b", version=2)
        assert node.devices() == []


async def test_too_many_slices_of_a_driver_are_logged_once_and_the_rest_is_shown(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(200):
        await node.put(f"s{n:03}", f"d{n:03}", count=200)
    await node.put("other", "x", driver="nic.example.com")
    async with node.running():
        await later(1)
        assert len(node.devices()) == 128
        assert node.devices(("nic.example.com", NODE)) == ["x"]
        assert len([r for r in caplog.records if "has too many" in r.getMessage()]) == 1
        # where one leaves, the next list brings another
        await node.remove("s000")
        assert node.api.handler is not None
        node.api.handler.synced([*node.api.slices.values()], 2)
        await later(1)
        pool = node.served.pools.get(KEY)
        assert pool is not None
        assert ("d128" in pool.devices, pool.count - pool.missing) == (True, 128)


async def test_pools_without_a_place_are_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.served.places.others = lambda: {f"example.com/r{n}": True for n in range(MAX_NAMES - 1)}
    await node.put("s", "a")
    await node.put("t", "b", pool="other")
    async with node.running():
        await node.put("u", "c", pool="third")
        assert len(node.served.resources) == 1
        [warning] = [record for record in caplog.records if "too many names" in record.getMessage()]
        assert warning.__dict__["error"] == "1"
        node.served.places.others = dict
        await later(60)
        assert len(node.served.resources) == 3
    assert len([record for record in caplog.records if "too many names" in record.getMessage()]) == 1


# -- clusters -------------------------------------------------------------------------------------------------------------------


async def test_without_the_kind_nothing_is_done_but_to_ask_rarely(node: Node) -> None:
    node.api.kinds = frozenset()
    async with node.running():
        await later(3 * ASK_SECONDS)
        assert 2 <= node.api.asked <= 5
        assert (node.api.fields, node.published) == ([], [])
        # the API server is another release by now
        node.api.kinds = frozenset({PLURAL, "devicetaintrules"})
        await node.put("s", "a")
        await later(2 * ASK_SECONDS)
        assert node.devices() == ["a"]
        assert node.served.has_rules


async def test_an_api_server_that_has_the_kind_no_more_has_no_slices(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        assert node.api.handler is not None
        node.api.kinds, node.api.is_stale = frozenset(), True
        await later(180)
        assert node.api.handler is None
        assert node.devices() == []


async def test_without_the_right_it_is_asked_for_again_each_minute(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.api.fails = ApiForbidden("listing resourceslices", "no", 403)
    async with node.running():
        await later(600)
        assert node.api.fields == []
        warnings = [record for record in caplog.records if "may not list ResourceSlices" in record.getMessage()]
        assert len(warnings) == 1
        node.api.fails = None
        await node.put("s", "a")
        await later(200)
        assert node.devices() == ["a"]


async def test_an_api_server_that_does_not_answer_is_asked_again(node: Node) -> None:
    node.api.fails = ApiUnreachable("listing resourceslices", "timeout")
    async with node.running():
        await later(60)
        node.api.fails = None
        await node.put("s", "a")
        await later(60)
        assert node.devices() == ["a"]


# -- others ---------------------------------------------------------------------------------------------------------------------


async def test_changes_of_holders_and_places_are_published(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        changes: list[Callable[[], None]] = [
            partial(node.observer.held_changed, *KEY),
            node.observer.held_known,
            partial(node.observer.displace, [NAME], "example.com/gpu"),
        ]
        for change in changes:
            node.published.clear()
            change()
            assert node.published == [NAME]


async def test_names_are_kept_in_a_file(node: Node, tmp_path: Path) -> None:
    await node.put("s", "a")
    await node.put("t", "b", pool="a/b")
    async with node.running():
        await later(observer.STORE_SECONDS + 1)
    found = known_names(node.file)
    assert found == node.served.names
    assert found[KEY] == NAME
    again = Node(tmp_path, found)
    async with again.running():
        await later(GONE_SECONDS + 1)
        assert {*again.published} == {*found.values()}
        # what nobody needs leaves the file
        for name in found.values():
            assert again.served.forget(name)
        await later(observer.STORE_SECONDS)
    assert not node.file.exists()


async def test_pools_end_where_drivers_are_not_observed_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, {KEY: NAME}, is_off=True)
    node.file.write_text(f'[{{"driver":"{DRIVER}","pool":"{NODE}","resourceName":"{NAME}"}}]')
    await node.put("s", "a")
    async with node.running():
        assert (node.api.asked, node.api.fields, node.published) == (0, [], [NAME])
        status = node.served.status(NAME, NodeDeviceStatus(total=1), MONDAY, 0.0, is_watch_stale=False)
        assert status is not None
        assert (status.total, status.conditions[0].status) == (0, "False")
        assert status.conditions[0].reason == Reason.NOT_CONFIGURED
        # somebody has removed it already
        node.file.unlink()
        assert node.served.forget(NAME)
        await later(1)
    assert not caplog.records


async def test_pools_that_are_invented_do_not_wear_the_disk_out(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(observer, "replace_durably", lambda path, text: written.append(text))
    async with node.running():
        for n in range(100):
            await node.put(f"s{n}", "a", pool=f"p{n}")
            await later(0.1)
        await later(observer.STORE_SECONDS)
    assert 2 <= len(written) <= 4
    assert "p99" in written[-1]


async def test_a_disk_without_room_is_logged_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(observer, "replace_durably", full)
    await node.put("s", "a")
    async with node.running():
        await node.put("t", "b", pool="other")
        await later(1)
        assert node.devices((DRIVER, "other")) == ["b"]
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[7]",
        '[{"driver":"d"}]',
        '[{"driver":"nodedevice.io","pool":"p","resourceName":"nodedevice.io/p"}]',
        '[{"driver":"a.com","pool":"p","resourceName":"b.com/p"}]',
        '[{"driver":"a.com","pool":"p","resourceName":"a.com/"}]',
        '[{"driver":"a.com","pool":"p","resourceName":"a.com/x y"}]',
    ],
)
async def test_a_damaged_file_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    assert known_names(file) == {}
    file.write_text(text)
    assert known_names(file) == {}
    file.unlink()
    file.mkdir()
    assert known_names(file) == {}


async def test_of_two_pools_with_one_name_in_the_file_the_first_has_it(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    entry = '{{"driver":"a.com","pool":"{}","resourceName":"a.com/x"}}'
    file.write_text(f"[{entry.format('p')},{entry.format('q')}]")
    assert known_names(file) == {("a.com", "p"): "a.com/x"}


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
        shown = [len(each.attributes) for pool in node.served.pools for each in pool.devices.values()]
        assert sorted(shown) == [0, 0, 2]
        warnings = [record for record in caplog.records if "attributes of devices" in record.getMessage()]
        assert len(warnings) == 1
        for n in (0, 1):
            await node.remove(f"s{n}")
        await node.put("s2", {**many, "name": "last"}, pool="p2", version=9)
        assert node.served.pools.bare == set()


async def test_slices_that_wait_have_a_bound_in_sum_and_the_next_list_brings_them(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = published("s", ["a"], version=2), published("t", ["b"], pool="other", version=2)
    monkeypatch.setattr(observer, "MOST_LISTED", first.octets)
    async with node.running():
        assert node.api.handler is not None
        # no turn of the loop between them
        node.api.handler.updated(first)
        node.api.handler.updated(second)
        await later(1)
        assert (node.devices(), node.devices((DRIVER, "other"))) == (["a"], [])
        node.api.handler.synced([published("s", ["a"], version=2), published("t", ["b"], pool="other", version=2)], 3)
        await later(1)
        assert node.devices((DRIVER, "other")) == ["b"]
