"""Every subscriber of the kubelet's reader: what it gets when the kubelet cannot be read, and afterwards."""

import ast
import asyncio
from collections.abc import Callable

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_common import tasks

from tests.fakes.background import background
from tests.fakes.kubelet_answers import read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU
from tests.unit.node_agent.kubelet.reader_node import BROKEN, Node, Recorder, is_away_with_a_torn_file
from tests.unit.node_agent.kubelet.subscribers import HOLDS_BACK, SUBSCRIBERS
from tests.unit.sources import ROOT, parsed

AGENT = ROOT / "node-agent/src/nodedevice_agent"


def test_every_subscriber_of_the_agent_is_tried() -> None:
    found = {
        each.name
        for path in AGENT.rglob("*.py")
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.ClassDef) and any(getattr(m, "name", "") == "pods_read" for m in each.body)
    }
    assert found - {"Subscriber"} == SUBSCRIBERS.keys()


@pytest.mark.parametrize("name", SUBSCRIBERS)
@pytest.mark.parametrize("breaks", BROKEN)
async def test_what_cannot_be_read_reaches_none_as_empty(breaks: Callable[[Node], None], name: str, node: Node) -> None:
    """Pods are those of before, and so are what they hold, and all devices with their NUMA nodes."""
    known = node.subscribe(name)
    await node.reader.read()
    before = known()
    breaks(node)
    node.kubelet.rows += (PodResourcesRow("default", "two", "i0", GPU, ("b",)),)
    for _ in range(3):
        node.recorded.is_outdated = True
        await node.reader.read()
    assert tasks.problems() == ()
    if name not in HOLDS_BACK or node.recorded.checkpoints[-1].checkpoint is not None:
        assert known() == before
    checkpoint, pods = node.recorded.checkpoints[-1], node.recorded.pods[-1]
    assert (checkpoint.checkpoint is None) is bool(checkpoint.problem)
    assert (pods.rows is None) is bool(pods.problem)
    assert (pods.devices is None) is bool(pods.devices_problem or pods.problem)
    assert checkpoint.problem or pods.problem or pods.devices_problem


@pytest.mark.parametrize("name", SUBSCRIBERS)
@virtual_time
async def test_each_gets_a_reading_of_one_that_is_back(name: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)
    known, fresh = node.subscribe(name), Node.subscribe(node, name)
    async with background(node.reader.run()):
        await asyncio.sleep(60)
        before = known()
        is_away_with_a_torn_file(node)
        await asyncio.sleep(300)
        node.kubelet.problem = ""
        node.kubelet.rows = node.kubelet.claim_rows = ()
        node.kubelet.write(registered={"example.com/other": ("x",)})
        node.kubelet.devices = {"example.com/other": {"x": ()}}
        await asyncio.sleep(60)
        assert known() != before
    assert known() == fresh()


@pytest.mark.parametrize("name", SUBSCRIBERS)
@virtual_time
async def test_one_that_fails_gets_its_reading_again(name: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)
    known = node.subscribe(name)
    other = Recorder()
    node.reader.subscribe(other)
    with monkeypatch.context() as broken:
        for method in ("checkpoint_read", "pods_read"):
            broken.setattr(node.subscriber, method, lambda _: 1 / 0)
        running = asyncio.create_task(node.reader.run())
        await asyncio.sleep(10)
        assert other.checkpoints
        assert other.pods
        for reading in ("checkpoint", "pods"):
            assert any(f"kubelet state {reading} {name} fails" in problem for problem in tasks.problems())
        before = known()
    # nothing has happened since
    await asyncio.sleep(120)
    assert known() != before
    assert tasks.problems() == ()
    running.cancel()
