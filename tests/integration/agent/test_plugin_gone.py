"""Plugins that go: what is written about them, and that the rest of the status, and a plugin that serves on, stay right.

`make bench-plugins` has the same with 255 plugins, and measures time and memory.
"""

import asyncio
import json
from collections import Counter

import psutil
import pytest

from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.many_plugins import many_plugins, resource_name
from tests.fakes.plugin import FakeDevice
from tests.integration.agent_process import AgentNode, condition, holdings

DEVICES = 1000
MANY, DEVICES_OF_EACH = 60, 300


@pytest.mark.parametrize("devices", [8, DEVICES])
async def test_a_plugin_that_goes_costs_one_write_and_names_no_device(
    agent_node: AgentNode, proxy: FaultProxy, devices: int
) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)})
    listed = {f"d{index:03}": FakeDevice(numa_nodes=(1,)) for index in range(devices)}
    plugin = await agent_node.plugin(listed)
    await agent_node.pod("one")
    await agent_node.until_numbers(total=devices, allocated=1, available=devices - 1)
    await agent_node.edit({"spec": {"cordonedDevices": [{"id": "d007"}]}})
    before = await agent_node.until(lambda seen: seen["cordoned"] == 1)
    proxy.requests.clear()
    await plugin.stop()
    seen = await agent_node.until(lambda seen: seen["endpoint"]["state"] == "Stopped")
    # what follows it would have come by now
    await asyncio.sleep(1)
    writes = Counter(method for _, method, path in proxy.requests if "/nodedevices/" in path and method != "WATCH")
    assert writes == {"PATCH": 1}
    assert [(d["id"], d["health"], d["numaNodes"], "reason" in d) for d in seen["devices"]] == [
        ("d000", "Unhealthy", [1], False),
        ("d007", "Unhealthy", [1], False),
    ]
    numbers = {key: seen[key] for key in ("total", "healthy", "cordoned", "allocated", "available", "devicesOmitted")}
    assert list(numbers.values()) == [devices, 0, 1, 1, 0, devices - 2]
    assert (condition(seen, "Registered")["reason"], condition(seen, "Healthy")["reason"]) == (
        "EndpointStopped",
        "NoHealthyDevices",
    )
    assert holdings(seen) == holdings(before) == {"one/c0": ["d000"]}
    await plugin.join(agent_node.plugin_dir)
    seen = await agent_node.until(lambda seen: seen["healthy"] == devices)
    assert seen["available"] == devices - 2
    assert [(d["id"], d.get("cordonedSince")) for d in seen["devices"]] == [
        (d["id"], d.get("cordonedSince")) for d in before["devices"]
    ]


async def test_many_plugins_go_at_once_beside_one_that_serves_on(agent_node: AgentNode, proxy: FaultProxy) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)})
    beside = await agent_node.free_plugin(8)
    with many_plugins(agent_node.plugin_dir, MANY, DEVICES_OF_EACH) as process:
        for number in range(MANY):
            await agent_node.until_numbers(DEVICES_OF_EACH, 0, DEVICES_OF_EACH, resource_name(number))
        proxy.requests.clear()
        process.kill()
        await agent_node.agent.until_logged("device plugin disconnected")
        await beside.set_health("d7", healthy=False)
        await agent_node.until_numbers(total=8, allocated=0, available=7)
    for number in range(MANY):
        seen = await agent_node.until(lambda seen: seen["endpoint"]["state"] == "Stopped", resource_name(number))
        assert (seen["devices"], seen["devicesOmitted"], len(json.dumps(seen)) < 4096) == ([], DEVICES_OF_EACH, True)
    written = [path for _, method, path in proxy.requests if method == "PATCH" and "/nodedevices/" in path]
    assert set(Counter(written).values()) == {1}
    assert psutil.Process(agent_node.agent.pid).memory_info().rss < 256 * 2**20
