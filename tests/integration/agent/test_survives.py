"""kill -9, lost and corrupt checkpoints, restarts of everything around the agent: no allocation is lost, no device is allocated
twice, and no unchanged status is written.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.plugin_process import plugin_process
from tests.integration.agent_process import GPU, AgentNode, condition, holdings
from tests.integration.product_process import Json

CHECKPOINT = "checkpoint.json"


def changes(node: AgentNode) -> list[str]:
    return [write for write in node.writes() if "nodedevices" in write]


async def settled(node: AgentNode) -> None:
    """The agent has started, its plugin is connected again, and it has read the objects of the API."""
    await node.agent.until_ready()
    await node.agent.until_logged("device plugin registered")
    await node.until(lambda seen: seen["endpoint"]["state"] == "Running")


async def cordoned(node: AgentNode, *device_ids: str) -> Json:
    """Cordon these and no others; what the API shows once the agent has counted them."""
    await node.edit({"spec": {"cordonedDevices": [{"id": device_id} for device_id in device_ids]}})
    return await node.until(lambda seen: seen["cordoned"] == len(device_ids))


async def test_a_restart_writes_nothing_when_nothing_changed(node: AgentNode) -> None:
    await node.agent.until_logged("serving device plugins")
    async with plugin_process(node.plugin_dir, GPU, 3):
        await node.pod("one", limits=[2])
        await node.pod("greedy", limits=[7])
        before = await node.until(lambda seen: seen["allocated"] == 2 and bool(seen["waiting"]))
        for how in (signal.SIGKILL, signal.SIGTERM):
            written = len(changes(node))
            await node.agent.stop(how)
            node.agent.start()
            await settled(node)
            assert node.status() == before
            # one change after whatever the restart could have written, and only that one is
            before = await cordoned(node, *(["dev-2"] if how == signal.SIGKILL else []))
            assert changes(node)[written:] == ["patch nodedevices/status"]


async def test_pods_that_finish_while_the_agent_is_down_are_released(node: AgentNode) -> None:
    await node.agent.until_logged("serving device plugins")
    async with plugin_process(node.plugin_dir, GPU, 3):
        await asyncio.gather(*(node.pod(name) for name in ("stays", "deleted", "completed")))
        before = await node.until_numbers(total=3, allocated=3, available=0)
        node.agent.kill()
        await node.delete_pod("deleted")
        await node.complete_pod("completed")
        await node.pod("new")
        node.agent.start()
        seen = await node.until(lambda seen: set(holdings(seen)) == {"stays/c0", "new/c0"})
        assert holdings(seen)["stays/c0"] == holdings(before)["stays/c0"]


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    place = content.index(b"d0")
    return content[:place] + b"d1" + content[place + 2 :]


@pytest.mark.kubelet("weak spot 6")
@pytest.mark.parametrize("damage", [truncated, flipped], ids=["truncated", "a bit flipped"])
async def test_a_broken_checkpoint_is_rebuilt_from_the_api(node: AgentNode, damage: Callable[[bytes], bytes]) -> None:
    plugin = await node.plugin(4)
    for name in ("one", "two"):
        await node.pod(name)
    before = await node.until_numbers(total=4, allocated=2, available=2)
    assert await node.agent.stop() == 0
    await plugin.stop()
    path = node.state_dir / CHECKPOINT
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    await node.delete_pod("two")
    await node.pod("three", limits=[2])
    node.agent.start()
    line = await node.agent.until_logged("invalid checkpoint; recovering allocations from the API")
    assert (Path(line["path"]).read_bytes(), line["level"]) == (broken, "error")
    await node.agent.until_logged("serving device plugins")
    await plugin.join(node.plugin_dir)
    seen = await node.until(lambda seen: set(holdings(seen)) == {"one/c0", "three/c0"})
    assert holdings(seen)["one/c0"] == holdings(before)["one/c0"]
    assert len({device for devices in holdings(seen).values() for device in devices}) == 3
    assert condition(seen, "Registered")["reason"] == "CheckpointUnreadable"
    assert Path(line["path"]).name in condition(seen, "Registered")["message"]
    # the answer for the pod that kept its device was lost as well, and is asked for again
    assert holdings(before)["one/c0"] in [list(call.device_ids) for call in plugin.calls_of("Allocate")[2:]]
    node.agent.kill()
    node.agent.start()
    await node.until(lambda seen: condition(seen, "Registered")["reason"] == "EndpointRunning")
    assert holdings(node.status()) == holdings(seen)


async def test_a_start_while_the_api_server_is_unreachable(node: AgentNode) -> None:
    plugin = await node.plugin(2)
    await node.pod("one")
    before = await node.until_numbers(total=2, allocated=1, available=1)
    await node.agent.stop()
    await asyncio.to_thread(node.control_plane.stop_apiserver)
    try:
        node.agent.start()
        await node.agent.until_logged("API server unreachable; retrying")
        await plugin.wait_for_streams(1)
        assert (await node.agent.get("/readyz"))[0] == 503
        assert (await node.agent.get("/healthz"))[0] == 200
    finally:
        await asyncio.to_thread(node.control_plane.start_apiserver)
    await node.agent.until_ready()
    assert node.status() == before
