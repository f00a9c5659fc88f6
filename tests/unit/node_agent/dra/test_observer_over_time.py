"""An observer of DRA drivers as clusters change under it, and what it remembers of pools over its restarts."""

from pathlib import Path

import pytest
from nodedevice_agent.dra import observer
from nodedevice_agent.dra.observer import ASK_SECONDS, known_names
from nodedevice_agent.dra.served import GONE_SECONDS
from nodedevice_agent.dra.slices import RESOURCE
from nodedevice_api.names import Condition, Reason
from nodedevice_kube.api_errors import Forbidden

from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.observed import FILE_NAME, Node
from tests.unit.node_agent.dra.published import DRIVER, KEY, NAME, NODE, row

pytestmark = virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_without_the_kind_nothing_is_done_but_to_ask_rarely(node: Node) -> None:
    node.api.kinds = frozenset()
    async with node.running():
        await later(3 * ASK_SECONDS)
        assert 2 <= node.api.asked <= 5
        assert (node.api.fields, node.published) == ([], [])
        # the API server is another release by now
        node.api.kinds = frozenset({RESOURCE.plural, "devicetaintrules"})
        await node.put("s", "a")
        await later(2 * ASK_SECONDS)
        assert node.devices() == ["a"]
        assert node.served.has_rules


async def test_an_api_server_that_has_the_kind_no_more_has_no_slices(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        node.api.kinds, node.api.is_stale = frozenset(), True
        await later(180)
        assert node.api.handler is None
        assert node.devices() == []


async def test_without_the_right_it_is_asked_for_each_minute(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.api.fails = Forbidden("listing", "resourceslices", "no", 403)
    async with node.running():
        await later(600)
        assert node.api.fields == []
        message = "what DRA drivers offer is not shown: the agent may not list ResourceSlices"
        remedy = "update the agent's ClusterRole, or set observeDra to false"
        assert log_lines(caplog.records) == [("WARNING", message, {"error": str(node.api.fails), "remedy": remedy})]
        node.api.fails = None
        await node.put("s", "a")
        await later(200)
        assert node.devices() == ["a"]


async def test_without_the_right_any_more_what_is_shown_is_not_current(node: Node) -> None:
    def is_current() -> str:
        return next(each.status for each in node.status().conditions if each.type == Condition.WATCHES_CURRENT)

    await node.put("s", "a")
    async with node.running():
        assert is_current() == "True"
        node.api.fails, node.api.is_stale = Forbidden("listing", "resourceslices", "no", 403), True
        node.published.clear()
        await later(180)
        assert (node.published, is_current(), node.devices()) == ([NAME], "False", ["a"])
        node.api.fails, node.api.is_stale = None, False
        await later(180)
        assert (node.published, is_current()) == ([NAME, NAME], "True")


async def test_a_kubelet_that_starts_takes_no_device_out_of_the_list(node: Node) -> None:
    """It deletes all slices of its node, and drivers publish theirs again one by one."""

    def shown() -> list[tuple[str, str]]:
        return [(each.id, each.presence) for each in node.status().devices]

    node.held.rows[KEY] = [row("p", "b")]
    for name in ("a", "b"):
        await node.put(name, name, count=2)
    async with node.running():
        before = shown()
        for name in ("a", "b"):
            await node.remove(name)
        assert shown() == before
        await node.put("c", "a", count=2)
        assert shown() == before
        await node.put("d", "b", count=2)
        assert shown() == before == [("a", "Present"), ("b", "Present")]
        # without any for longer, those that are there count
        for name in ("c", "d"):
            await node.remove(name)
        await later(GONE_SECONDS)
        await node.put("e", "a", count=2)
        assert shown() == [("a", "Present"), ("b", "Missing")]


def full(path: Path, text: str) -> None:
    raise OSError(28, "No space left on device")


async def test_names_are_kept_in_a_file(node: Node, tmp_path: Path) -> None:
    await node.put("s", "a")
    await node.put("t", "b", pool="a/b")
    async with node.running():
        await later(observer.STORE_SECONDS + 1)
        stored = node.file.stat().st_ino
        await later(observer.STORE_SECONDS)
        assert node.file.stat().st_ino == stored, "once"
    found = known_names(node.file)
    assert (found, found[KEY]) == (node.served.names, NAME)
    again = Node(tmp_path, found)
    async with again.running():
        await later(GONE_SECONDS + 1)
        assert {*again.published} == {*found.values()}
        # what nobody needs leaves the file
        for name in found.values():
            assert again.served.forget(name)
        await later(observer.STORE_SECONDS)
    assert not node.file.exists()


async def test_pools_end_where_drivers_are_no_more_observed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, {KEY: NAME}, is_off=True)
    node.file.write_text(f'[{{"driver":"{DRIVER}","pool":"{NODE}","resourceName":"{NAME}"}}]')
    await node.put("s", "a")
    async with node.running():
        assert (node.api.asked, node.api.fields, node.published) == (0, [], [NAME])
        status = node.status()
        first = status.conditions[0]
        assert (status.total, first.status, first.reason) == (0, "False", Reason.NOT_CONFIGURED)
        # it was removed already
        node.file.unlink()
        assert node.served.forget(NAME)
        await later(1)
    assert not caplog.records


async def test_a_disk_without_room_is_logged_once_and_names_are_stored_when_it_has_some(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(observer, "replace_durably", full)
        # the second one is a run after a failure of another part
        for pool in ("one", "other"):
            async with node.running():
                await node.put(pool, "b", pool=pool)
                await later(2 * observer.STORE_SECONDS)
                assert node.devices((DRIVER, pool)) == ["b"]
    fields = {"path": str(node.file), "error": "No space left on device"}
    assert log_lines(caplog.records) == [("ERROR", "cannot keep the names of pools", fields)]
    async with node.running():
        await later(observer.STORE_SECONDS)
    assert known_names(node.file) == node.served.names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("7", {}),
        ("[7]", {}),
        ('[{"driver":"d"}]', {}),
        ('[{"driver":"nodedevice.io","pool":"p","resourceName":"nodedevice.io/p"}]', {}),
        ('[{"driver":"a.com","pool":"p","resourceName":"b.com/p"}]', {}),
        ('[{"driver":"a.com","pool":"p","resourceName":"a.com/"}]', {}),
        ('[{"driver":"a.com","pool":"p","resourceName":"a.com/x y"}]', {}),
        ('[{"driver":"A.com","pool":"p","resourceName":"a.com/p"}]', {("A.com", "p"): "a.com/p"}),
    ],
)
async def test_a_damaged_file_is_as_good_as_none(text: str, found: dict[tuple[str, str], str], tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    assert known_names(file) == {}
    file.write_text(text)
    assert known_names(file) == found
    file.unlink()
    file.mkdir()
    assert known_names(file) == {}
