"""Plugins that send lists without end: what reaches the API server is bounded, and others are served. Counts, not times."""

import asyncio
import itertools
import time
from collections.abc import Mapping

from nodedevice_agent.deviceplugin.connection import LISTS_AT_ONCE, LISTS_PER_SECOND
from nodedevice_agent.kube.write_budget import OBJECT_WRITES_AT_ONCE, OBJECT_WRITES_PER_SECOND
from nodedevice_api.names import node_device_name

from tests.fakes.background import background
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.agent_process import GPU, AgentNode

NIC = "example.com/nic"
FLOOD_SECONDS = 5.0


def devices(*ids: str) -> Mapping[str, FakeDevice]:
    return dict.fromkeys(ids, FakeDevice())


def status_writes(proxy: FaultProxy, node: AgentNode, since: float) -> int:
    return proxy.count("PATCH", f"/nodedevices/{node_device_name(node.name, GPU)}/status", since)


async def lists_read(node: AgentNode) -> float:
    """By the agent's metrics."""
    _, page = await node.agent.get("/metrics")
    (line,) = [
        line
        for line in page.splitlines()
        if line.startswith(f'nodedevice_agent_device_lists_total{{resource_name="{GPU}"')
    ]
    return float(line.rpartition(" ")[2])


async def test_a_plugin_that_removes_and_adds_devices_without_end_makes_no_number_jump(
    agent_node: AgentNode, proxy: FaultProxy
) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)})
    ids = [f"d{index}" for index in range(8)]
    plugin = await agent_node.plugin(devices(*ids))
    await agent_node.until_numbers(total=8, allocated=0, available=8)
    plugin.knobs.flood_with, plugin.knobs.is_flooding = devices("d0"), True
    began = time.monotonic()
    await plugin.resend()
    await agent_node.until_numbers(total=8, allocated=0, available=1)
    await asyncio.sleep(FLOOD_SECONDS)
    seen = agent_node.status()
    assert (seen["total"], seen["healthy"], seen["available"]) == (8, 1, 1)
    assert {device["reason"] for device in seen["devices"] if device["id"] != "d0"} == {"Flapping"}
    # the first changes; after that only the rounded number in the messages
    assert status_writes(proxy, agent_node, began) <= 8
    read = await lists_read(agent_node)
    # they are read while the agent answers, too
    seconds = time.monotonic() - began
    assert read <= LISTS_AT_ONCE + LISTS_PER_SECOND * seconds + 3
    assert len(agent_node.agent.lines("device plugin sends too many device lists; reading them more slowly")) == 1
    # the last list counts once it was quiet
    plugin.knobs.is_flooding = False
    await plugin.update(devices(*ids))
    await agent_node.until_numbers(total=8, allocated=0, available=8)


async def ever_new(plugin: FakePlugin) -> None:
    """No device is listed twice, so none is damped; one or eight at a time."""
    for number in itertools.count():
        await plugin.update(devices(*(f"{number}-{index}" for index in range(8 if number % 2 else 1))))
        await asyncio.sleep(0.002)


async def test_changes_without_end_are_written_at_a_bounded_rate_and_others_are_served(
    agent_node: AgentNode, proxy: FaultProxy
) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)})
    plugin = await agent_node.free_plugin(1)
    other = await agent_node.free_plugin(2, NIC)
    began = time.monotonic()
    async with background(ever_new(plugin)):
        await asyncio.sleep(FLOOD_SECONDS)
        await other.set_health("d0", healthy=False)
        await agent_node.until_numbers(total=2, allocated=0, available=1, resource_name=NIC)
        seconds = time.monotonic() - began
        most = OBJECT_WRITES_AT_ONCE + OBJECT_WRITES_PER_SECOND * seconds + 1
        assert status_writes(proxy, agent_node, began) <= most
    await plugin.update(devices("last", "least"))
    seen = await agent_node.until(lambda seen: seen["total"] == 2)
    assert [device["id"] for device in seen["devices"]] == ["last", "least"]
