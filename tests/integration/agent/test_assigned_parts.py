"""Pods that are bound with parts assigned to them, on a real API server: the agent takes these, and reports what it cannot take."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_api import names
from nodedevice_api.assigned_parts import encode

from tests.integration.agent_process import GPU, AgentNode
from tests.integration.builtin_plugins.plugins import gpus, running
from tests.integration.extender.extender_process import make_pod
from tests.integration.product_process import Json

ONE, OTHER = "gpu-0", "gpu-1"


@pytest.fixture
async def shared(node: AgentNode, tmp_path: Path) -> AsyncIterator[AgentNode]:
    """Two devices of ten parts; a container takes all its parts of one, the fuller one first. Four of the first one are held."""
    await node.agent.until_logged("serving device plugins")
    settings = gpus(2, partsPerDevice=10, parts={"placement": "same-parent"})
    async with running(settings, node.plugin_dir, tmp_path):
        await node.until_numbers(total=20, allocated=0, available=20)
        await node.pod("first", [4])
        seen = await node.until(lambda seen: seen["allocated"] == 4)
        assert parts(seen) == {"first": {ONE: 4}}
        yield node


def parts(status: Json) -> dict[str, dict[str, int]]:
    """By pod, how many parts of which device its one container has."""
    return {a["name"]: {each["parent"]: each["parts"] for each in a["parts"]} for a in status["allocations"]}


async def bind(node: AgentNode, name: str, uid: str, assigned: str) -> None:
    """As the extender does: node and annotation in one write."""
    metadata = {"name": name, "uid": uid, "annotations": {names.ASSIGNED_PARTS_ANNOTATION: assigned}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
    path = node.folder / "binding.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}))
    url = f"/api/v1/namespaces/{node.namespace}/pods/{name}/binding"
    await asyncio.to_thread(node.control_plane.kubectl, "create", "--raw", url, "-f", str(path))


async def outcome(node: AgentNode, word: str) -> bool:
    _, metrics = await node.agent.get("/metrics")
    return f'nodedevice_agent_assigned_parts_total{{outcome="{word}"}} 1.0' in metrics


async def test_the_pod_gets_the_device_that_its_binding_names(shared: AgentNode) -> None:
    pod = await asyncio.to_thread(make_pod, shared.control_plane, shared.namespace, "second", 5, GPU)
    uid = str(pod.metadata.uid)
    # left to itself the agent fills the first device
    await bind(shared, "second", uid, encode(uid, {GPU: {"main": {OTHER: 5}}}))
    seen = await shared.until(lambda seen: seen["allocated"] == 9)
    assert parts(seen) == {"first": {ONE: 4}, "second": {OTHER: 5}}
    assert await outcome(shared, "used")
    shared.agent.kill()
    shared.start_agent()
    await shared.agent.until_ready()
    assert parts(await shared.until_numbers(total=20, allocated=9, available=11)) == parts(seen)
