"""When the one reader reads: at once, a moment later, after a pause, or when somebody asks for it."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.long_files import KubeletFile
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.directory import read_file
from nodedevice_agent.kubelet.readings import Pace

from tests.fakes.background import background
from tests.fakes.kubelet_answers import read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU
from tests.unit.node_agent.kubelet.reader_node import Node

pytestmark = virtual_time
THIRD = Allocation("three", "c0", GPU, {-1: ("c",)}, b"")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)


def counts(node: Node) -> tuple[int, int]:
    """How many checkpoints and pod resources a subscriber got."""
    return len(node.recorded.checkpoints), len(node.recorded.pods)


async def test_a_write_is_given_at_once_and_pods_are_asked_for_a_moment_later(node: Node) -> None:
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        assert counts(node) == (1, 1)
        node.write(THIRD)
        await asyncio.sleep(0.05)
        assert counts(node) == (2, 1)
        await asyncio.sleep(0.1)
        assert counts(node) == (2, 2)


async def test_who_does_not_follow_the_file_gets_it_after_a_while(node: Node) -> None:
    node.recorded.pace = Pace(check_seconds=20.0)
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        node.write(THIRD)
        await asyncio.sleep(18.5)
        assert counts(node) == (1, 1)
        await asyncio.sleep(1.0)
        assert counts(node) == (2, 2)


async def test_who_is_outdated_and_wakes_the_reader_gets_pods_at_once(node: Node) -> None:
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        node.recorded.is_outdated = True
        node.reader.wake()
        await asyncio.sleep(0.2)
        assert counts(node) == (1, 2)
        await asyncio.sleep(20.0)
        assert counts(node) == (1, 2), "once"


async def test_a_file_that_could_not_be_read_is_tried_again_soon(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    is_broken = True

    def read(file: Path, before: object) -> KubeletFile:
        if is_broken:
            raise OSError(5, "Input/output error")
        return read_file(file)

    monkeypatch.setattr("nodedevice_agent.kubelet.reader.read_file", read)
    async with background(node.reader.run()):
        await asyncio.sleep(0.5)
        assert [each.problem for each in node.recorded.checkpoints] == ["cannot be read: Input/output error"]
        is_broken = False
        await asyncio.sleep(1.0)
        assert node.recorded.checkpoints[-1].problem == ""


async def test_a_list_that_is_due_is_made_when_it_is_due(node: Node) -> None:
    node.recorded.pace = Pace(list_seconds=30.0)
    times: list[float] = []
    node.kubelet.meanwhile = lambda: times.append(asyncio.get_running_loop().time())
    async with background(node.reader.run()):
        await asyncio.sleep(100.0)
    assert [round(each - times[0], 3) for each in times] == [0.0, 30.0, 60.0, 90.0]
