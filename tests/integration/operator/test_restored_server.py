"""An API server that is restored from a backup: its versions go back, and both programs use what it has now."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.cluster.chart import install_chart
from hack.cluster.control_plane.control_plane import ControlPlane
from tests.integration.agent_process import GPU, AgentNode, holdings
from tests.integration.operator_process import OperatorProcess

LATER_WRITES = 200
CAUGHT_UP_SECONDS = 60


@pytest.fixture
def own_control_plane(progress: Callable[[str], None], tmp_path: Path) -> Iterator[ControlPlane]:
    """No other test may be on it: it loses what it had."""
    with ControlPlane.start(tmp_path / "control-plane", progress) as running:
        install_chart(running)
        running.add_namespace("test")
        yield running


def capacity(node: AgentNode) -> str:
    return node.control_plane.kubectl("get", "node", node.name, "-o", f"jsonpath={{.status.capacity.{GPU_PATH}}}")


GPU_PATH = GPU.replace(".", "\\.")


async def test_what_was_restored_replaces_what_is_newer(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    node = AgentNode(own_control_plane, "test", f"agent-{uuid.uuid4().hex[:8]}", tmp_path)
    await asyncio.to_thread(own_control_plane.add_node, node.name, wait_ready=False)
    (tmp_path / "operator").mkdir()
    operator = OperatorProcess(own_control_plane, tmp_path / "operator")
    try:
        node.start_agent()
        plugin = await node.free_plugin(3)
        await node.pod("one")
        await node.until_numbers(total=3, allocated=1, available=2)
        await asyncio.to_thread(operator.start)
        await until_capacity(node, "3")
        await asyncio.to_thread(own_control_plane.back_up, tmp_path / "backup")
        # all of this is lost: a pod, cordons, and versions far above those of the backup
        await node.pod("two")
        await node.edit({"spec": {"cordonedDevices": [{"id": "d2"}]}})
        await node.until_numbers(total=3, allocated=2, available=0)
        await until_capacity(node, "2")
        for number in range(LATER_WRITES):
            args = ["annotate", "node", node.name, "--overwrite", f"number={number}"]
            await asyncio.to_thread(own_control_plane.kubectl, *args)
        await asyncio.to_thread(own_control_plane.restore, tmp_path / "backup")
        seen = await node.until_numbers(total=3, allocated=1, available=2)
        assert set(holdings(seen)) == {"one/c0"}
        await until_capacity(node, "3")
        # what comes next is taken in at once, not when the versions have grown past the old ones
        await node.edit({"spec": {"cordonedDevices": [{"id": "d1"}, {"id": "d2"}]}})
        await node.until_numbers(total=3, allocated=1, available=0)
        await until_capacity(node, "1")
        await plugin.set_health("d0", healthy=False)
        await node.until(lambda seen: seen["healthy"] == 2)
    finally:
        await asyncio.to_thread(operator.close)
        await node.close()


async def until_capacity(node: AgentNode, count: str) -> None:
    async with asyncio.timeout(CAUGHT_UP_SECONDS):
        while await asyncio.to_thread(capacity, node) != count:
            await asyncio.sleep(0.2)
