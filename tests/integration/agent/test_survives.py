"""kill -9, lost and corrupt checkpoints, restarts of everything around the agent: no allocation is lost, no device is allocated
twice, and no unchanged status is written.
"""

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from nodedevice_agent.kube.observed import since_of
from nodedevice_api.names import node_device_name

from tests.cluster.errors import CommandError
from tests.fakes.plugin import FakePlugin
from tests.fakes.plugin_process import plugin_process
from tests.integration.agent_process import GPU, AgentNode, condition, holdings
from tests.integration.product_process import Json

CHECKPOINT = "checkpoint.json"


@contextlib.asynccontextmanager
async def without_api_server(node: AgentNode) -> AsyncIterator[None]:
    await asyncio.to_thread(node.control_plane.stop_apiserver)
    try:
        yield
    finally:
        await asyncio.to_thread(node.control_plane.start_apiserver)


def changes(node: AgentNode) -> list[str]:
    return [write for write in node.writes() if "nodedevices" in write]


def is_consistent(seen: Json) -> bool:
    """No device in two pods' hands."""
    holders: dict[str, str] = {}
    for entry in seen.get("allocations", ()):
        for device_id in entry["deviceIDs"]:
            if holders.setdefault(device_id, entry["podUID"]) != entry["podUID"]:
                return False
    return True


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


async def test_kill_9_at_any_moment_loses_and_doubles_nothing(node: AgentNode) -> None:
    chance = random.Random(20_260_101)
    await node.agent.until_logged("serving device plugins")
    async with plugin_process(node.plugin_dir, GPU, 8):
        await node.until_numbers(total=8, allocated=0, available=8)
        held: dict[str, list[str]] = {}
        alive: list[str] = []
        for number in range(12):
            await node.pod(f"p{number:02}", limits=[chance.choice([1, 1, 2])])
            alive.append(f"p{number:02}")
            if len(alive) > 5:
                gone = alive.pop(chance.randrange(len(alive)))
                await node.delete_pod(gone)
                held.pop(f"{gone}/c0", None)
            # anywhere between at once and served
            await asyncio.sleep(chance.random() * 0.2)
            seen = node.status()
            assert is_consistent(seen)
            held |= {key: ids for key, ids in holdings(seen).items() if key.partition("/")[0] in alive}
            node.agent.kill()
            node.agent.start()
        wanted = {f"{name}/c0" for name in alive}
        seen = await node.until(lambda seen: set(holdings(seen)) == wanted and not seen["waiting"])
        assert is_consistent(seen)
        kept = {key: ids for key, ids in held.items() if key in wanted}
        assert {key: holdings(seen)[key] for key in kept} == kept


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


async def test_after_a_restart_the_last_numbers_stay_until_the_endpoint_is_stopped(node: AgentNode) -> None:
    plugin = await node.plugin(2)
    await node.pod("one")
    before = await node.until_numbers(total=2, allocated=1, available=1)
    version = node.version()
    node.agent.kill()
    await plugin.stop()
    node.agent.start()
    await node.agent.until_ready()
    assert (node.status(), node.version()) == (before, version)
    seen = await node.until(lambda seen: seen["endpoint"]["state"] != "Running")
    assert (seen["endpoint"]["state"], seen["allocated"], seen["available"]) == ("Stopped", 1, 0)
    assert holdings(seen) == holdings(before)


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    place = content.index(b"d0")
    return content[:place] + b"d1" + content[place + 2 :]


@pytest.mark.kubelet("weak spot 6")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncated, id="truncated"),
        pytest.param(flipped, id="a bit flipped"),
    ],
)
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
    assert is_consistent(seen)
    assert condition(seen, "Registered")["reason"] == "CheckpointUnreadable"
    assert Path(line["path"]).name in condition(seen, "Registered")["message"]
    # the answer for the pod that kept its device was lost as well, and is asked for again
    assert holdings(before)["one/c0"] in [list(call.device_ids) for call in plugin.calls_of("Allocate")[2:]]
    node.agent.kill()
    node.agent.start()
    await node.until(lambda seen: condition(seen, "Registered")["reason"] == "EndpointRunning")
    assert holdings(node.status()) == holdings(seen)


async def with_a_released_pod(node: AgentNode) -> tuple[FakePlugin, Json]:
    """A plugin of three devices, of which a pod holds one and another held one; the agent is stopped. Returns the last status."""
    plugin = await node.plugin(3)
    for name in ("one", "two"):
        await node.pod(name)
    await node.until_numbers(total=3, allocated=2, available=1)
    await node.delete_pod("one")
    before = await node.until_numbers(total=3, allocated=1, available=2)
    await node.agent.stop()
    return plugin, before


async def test_a_broken_checkpoint_and_no_api_server_and_another_restart(node: AgentNode) -> None:
    """Until the allocations are recovered, no checkpoint is written that the next start would trust."""
    plugin, before = await with_a_released_pod(node)
    (node.state_dir / CHECKPOINT).write_bytes(b"")
    await plugin.stop()
    async with without_api_server(node):
        for how in (signal.SIGKILL, signal.SIGTERM):
            node.agent.start()
            await node.agent.until_logged("serving device plugins")
            await plugin.join(node.plugin_dir)
            await plugin.wait_for_streams(1)
            await plugin.resend()
            await node.agent.stop(how)
            await plugin.stop()
    node.agent.start()
    await node.agent.until_logged("serving device plugins")
    await plugin.join(node.plugin_dir)
    await node.pod("zzz")
    seen = await node.until(lambda seen: set(holdings(seen)) == {"two/c0", "zzz/c0"})
    assert holdings(seen)["two/c0"] == holdings(before)["two/c0"]


@pytest.mark.kubelet("weak spot 6")
async def test_a_deleted_checkpoint_is_recovered_from_the_api(node: AgentNode) -> None:
    plugin, before = await with_a_released_pod(node)
    (node.state_dir / CHECKPOINT).unlink()
    await node.pod("zzz")
    node.agent.start()
    await node.agent.until_logged("serving device plugins")
    await plugin.stop()
    await plugin.join(node.plugin_dir)
    seen = await node.until(lambda seen: set(holdings(seen)) == {"two/c0", "zzz/c0"})
    assert holdings(seen)["two/c0"] == holdings(before)["two/c0"]


async def test_since_when_a_container_has_its_devices_survives_the_object(node: AgentNode) -> None:
    await node.agent.until_logged("serving device plugins")
    async with plugin_process(node.plugin_dir, GPU, 2):
        await node.pod("one")
        before = await node.until_numbers(total=2, allocated=1, available=1)
        await node.agent.stop(signal.SIGTERM)
        checkpoint = node.state_dir / CHECKPOINT
        whole = json.loads(checkpoint.read_bytes())
        assert [since_of(entry["since"]) for entry in before["allocations"]] == whole["Since"]
        # long ago, so that no time of this test is taken for it
        checkpoint.write_text(json.dumps({**whole, "Since": [1]}))
        name = node_device_name(node.name, GPU)
        await asyncio.to_thread(node.control_plane.kubectl, "delete", "nodedevice", name)
        node.agent.start()
        seen = await node.until_numbers(total=2, allocated=1, available=1)
        assert [entry["since"] for entry in seen["allocations"]] == ["1970-01-01T00:00:01Z"]


async def test_a_resource_that_lost_plugin_and_checkpoint_is_still_updated(node: AgentNode) -> None:
    plugin = await node.free_plugin(3)
    node.agent.kill()
    await plugin.stop()
    (node.state_dir / CHECKPOINT).write_bytes(b"")
    node.agent.start()
    seen = await node.until(lambda seen: seen["endpoint"]["state"] == "Stopped")
    assert (seen["available"], condition(seen, "Registered")["status"]) == (0, "False")


async def test_an_outage_of_the_api_server_is_caught_up_with(node: AgentNode) -> None:
    plugin = await node.plugin(3)
    await node.pod("one")
    before = await node.until_numbers(total=3, allocated=1, available=2)
    async with without_api_server(node):
        with pytest.raises(CommandError, match="refused"):
            await asyncio.to_thread(node.control_plane.kubectl, "get", "nodedevices")
        await plugin.update({name: device for name, device in plugin.devices.items() if name != "d2"})
        await plugin.set_health("d1", healthy=False)
        await node.agent.until_logged("API server unreachable; retrying")
    seen = await node.until_numbers(total=2, allocated=1, available=0)
    assert holdings(seen) == holdings(before)
    await node.delete_pod("one")
    await plugin.set_health("d1", healthy=True)
    await node.until_numbers(total=2, allocated=0, available=2)
    await node.agent.until_ready()


async def test_a_start_while_the_api_server_is_unreachable(node: AgentNode) -> None:
    plugin = await node.plugin(2)
    await node.pod("one")
    before = await node.until_numbers(total=2, allocated=1, available=1)
    await node.agent.stop()
    async with without_api_server(node):
        node.agent.start()
        await node.agent.until_logged("API server unreachable; retrying")
        await plugin.wait_for_streams(1)
        assert (await node.agent.get("/readyz"))[0] == 503
        assert (await node.agent.get("/healthz"))[0] == 200
    await node.agent.until_ready()
    assert node.status() == before
