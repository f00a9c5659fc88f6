"""Readings of the one reader of the kubelet: how fresh they are, and how they are decoded."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.long_files import KubeletFile
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet import reader
from nodedevice_agent.kubelet.directory import read_file
from nodedevice_agent.kubelet.readings import Pace

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Node, is_away


async def test_a_write_while_the_file_is_read_is_read_next(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.reader.read_checkpoint()

    def overtaken(file: Path, before: Any) -> KubeletFile:
        found = read_file(file)
        node.kubelet.write()
        return found

    node.write(Allocation("three", "c0", GPU, {-1: ("c",)}, b""))
    with monkeypatch.context() as patched:
        patched.setattr(reader, "read_file", overtaken)
        await node.reader.read_checkpoint()
    await node.reader.read_checkpoint()
    assert [len(each.checkpoint.allocations) for each in node.recorded.checkpoints if each.checkpoint] == [2, 3, 0]


async def test_the_same_content_in_another_file_is_another_reading(node: Node) -> None:
    """A list of devices may differ in what is not in it, such as NUMA nodes."""
    for _ in range(2):
        node.write()
        for _ in range(2):
            await node.reader.read_checkpoint()
    assert len(node.recorded.checkpoints) == 2


async def test_rows_go_with_the_newest_checkpoint(node: Node) -> None:
    """What has been given out while the kubelet was asked is not forgotten again."""
    await node.reader.read_checkpoint()
    node.write(Allocation("three", "c0", GPU, {-1: ("c",)}, b""))

    class Slow(KubeletAnswers):
        async def list_pods(self, entries: object = ()) -> Any:
            await node.reader.read_checkpoint()
            return await super().list_pods(entries)

    node.kubelet.__class__ = Slow
    await node.reader.read()
    found = node.recorded.pods[-1].checkpoint
    assert found is not None
    assert len(found.allocations) == 3


async def test_who_is_outdated_meanwhile_gets_another(node: Node) -> None:
    await node.reader.read()
    node.kubelet.meanwhile = lambda: setattr(node.recorded, "is_outdated", True)
    node.recorded.is_outdated = True
    await node.reader.read()
    assert node.recorded.is_outdated
    node.kubelet.meanwhile = lambda: None
    await node.reader.read()
    assert (node.recorded.is_outdated, len(node.recorded.pods)) == (False, 3)


async def test_a_file_that_comes_late_is_found(node: Node) -> None:
    """Also one that is there before its directory is watched."""
    node.recorded.pace = Pace(is_following=True, check_seconds=3600.0)
    node.kubelet.directory.checkpoint.unlink()
    node.kubelet.directory.device_plugins.rmdir()
    async with background(node.reader.run()):
        await until(lambda: len(node.recorded.pods) == 1)
        node.kubelet.directory.device_plugins.mkdir()
        node.write()
        await until(lambda: node.recorded.checkpoints[-1].checkpoint.registered == {GPU: ("a", "b", "c")})  # type: ignore[union-attr]


async def test_the_end_of_a_pod_that_the_api_does_not_have_shows_in_a_list(node: Node) -> None:
    """Such as a static pod whose mirror pod was never made."""
    node.pods["one"] = pod("one", gpu=1)
    node.kubelet.rows += (PodResourcesRow("kube-system", "static", "c0", GPU, ("c",)),)
    await node.reader.read()
    node.kubelet.rows = node.kubelet.rows[:1]
    node.recorded.is_outdated = True
    await node.reader.read()
    assert [row.name for row in node.recorded.pods[-1].rows or ()] == ["one"]


async def test_the_end_of_a_pod_that_the_api_had_needs_no_call(node: Node) -> None:
    """A list would free the devices of ended pods, which is the kubelet's own affair."""
    node.pods["one"], node.kubelet.claim_rows = pod("one", gpu=1), ()
    await node.reader.read()
    del node.pods["one"]
    node.kubelet.calls.clear()
    for _ in range(2):
        node.kubelet.write()
        await node.reader.read()
        assert (node.recorded.pods[-1].rows, node.kubelet.calls.keys() & {"List", "Get"}) == ((), set())


async def test_a_kubelet_that_went_away_is_noticed_though_no_pod_has_changed(node: Node) -> None:
    node.pods["one"] = pod("one", gpu=1)
    await node.reader.read()
    is_away(node)
    node.recorded.is_outdated = True
    await node.reader.read()
    assert (node.recorded.pods[-1].rows, node.recorded.pods[-1].problem) == (None, "UNAVAILABLE: no route")
    # it may be another one that comes back
    node.kubelet.problem = ""
    node.kubelet.calls.clear()
    await node.reader.read()
    assert (node.recorded.pods[-1].problem, node.kubelet.calls["List"]) == ("", 1)


async def test_callers_that_come_during_a_reading_share_the_next_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they have given up waiting: a long file is never read by two threads at once."""
    goes_on, begun, threads_seen = threading.Event(), asyncio.Queue[None](), list[bool]()
    loop = asyncio.get_running_loop()

    def slow(file: Path, before: Any) -> KubeletFile:
        threads_seen.append(threading.current_thread() is not threading.main_thread())
        loop.call_soon_threadsafe(begun.put_nowait, None)
        assert goes_on.wait(60)
        return read_file(file)

    monkeypatch.setattr(reader, "read_file", slow)
    callers = [asyncio.create_task(node.reader.read_checkpoint())]
    await begun.get()
    callers += [asyncio.create_task(node.reader.read_checkpoint()) for _ in range(20)]
    await asyncio.sleep(0)
    for caller in callers[:10]:
        caller.cancel()
    node.write(Allocation("three", "c0", GPU, {-1: ("c",)}, b""))
    goes_on.set()
    await asyncio.gather(*callers[10:])
    assert threads_seen == [True, True]
    assert [len(each.checkpoint.allocations) for each in node.recorded.checkpoints if each.checkpoint][-1] == 3
