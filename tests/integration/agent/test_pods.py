"""Pods bound to the agent's node: with devices, waiting, ending; and the calls of their plugins."""

import asyncio

import pytest

from tests.integration.agent_process import AgentNode


@pytest.mark.kubelet("weak spot 13")
@pytest.mark.parametrize("how", ["deleted", "completed"])
async def test_a_pod_gets_devices_and_gives_them_back(node: AgentNode, how: str) -> None:
    plugin = await node.plugin(3)
    uid = await node.pod("one", limits=[2])
    seen = await node.until_numbers(total=3, allocated=2, available=1)
    (held,) = seen["allocations"]
    pod = {"namespace": node.namespace, "name": "one", "podUID": uid}
    assert {**pod, "container": "c0", "deviceIDs": ["d0", "d1"]}.items() <= held.items()
    assert [call.device_ids for call in plugin.calls_of("Allocate")] == [("d0", "d1")]
    await (node.delete_pod("one") if how == "deleted" else node.complete_pod("one"))
    seen = await node.until_numbers(total=3, allocated=0, available=3)
    assert seen["allocations"] == []


@pytest.mark.kubelet("weak spot 3")
async def test_a_hanging_plugin_blocks_no_other(node: AgentNode) -> None:
    hanging = await node.plugin(1)
    other = "example.com/other"
    await node.plugin(1, other)
    hanging.knobs.allocate_gate = asyncio.Event()
    await node.pod("stuck")
    await hanging.wait_for_calls("Allocate")
    await node.pod("free", resource=other)
    await node.until_numbers(total=1, allocated=1, available=0, resource_name=other)
    assert node.status()["allocated"] == 0
    hanging.knobs.allocate_gate.set()
    await node.until_numbers(total=1, allocated=1, available=0)
