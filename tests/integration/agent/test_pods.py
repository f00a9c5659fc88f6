"""Pods bound to the agent's node: with devices, waiting, ending; and the calls of their plugins."""

import asyncio

import pytest

from tests.integration.agent_process import AgentNode, holdings


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


async def test_pods_that_are_older_than_the_agent_and_its_plugin(node: AgentNode) -> None:
    node.agent.kill()
    await node.pod("early")
    node.agent.start()
    line = await node.agent.until_logged("pod requests a resource that no device plugin has registered yet")
    assert line["pod"] == f"{node.namespace}/early"
    await node.plugin(1)
    seen = await node.until_numbers(total=1, allocated=1, available=0)
    assert holdings(seen) == {"early/c0": ["d0"]}


async def test_a_pod_waits_in_the_open_and_is_served_when_a_device_comes_free(node: AgentNode) -> None:
    await node.plugin(2)
    await node.pod("first", limits=[2])
    await node.until_numbers(total=2, allocated=2, available=0)
    uid = await node.pod("second")
    seen = await node.until(lambda seen: bool(seen["waiting"]))
    (waiting,) = seen["waiting"]
    pod = {"namespace": node.namespace, "name": "second", "podUID": uid}
    why = {"reason": "NotEnoughDevices", "message": "1 of example.com/gpu needed, but fewer are available"}
    assert {**pod, "container": "c0", **why}.items() <= waiting.items()
    await node.delete_pod("first")
    seen = await node.until_numbers(total=2, allocated=1, available=1)
    assert (holdings(seen), seen["waiting"]) == ({"second/c0": ["d0"]}, [])


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


async def test_a_device_that_fails_or_disappears_stays_allocated(node: AgentNode) -> None:
    plugin = await node.plugin(2)
    await node.pod("one")
    await node.until_numbers(total=2, allocated=1, available=1)
    await plugin.set_health("d0", healthy=False)
    seen = await node.until(lambda seen: seen["healthy"] == 1)
    assert (seen["allocated"], seen["available"]) == (1, 1)
    await plugin.update({"d1": plugin.devices["d1"]})
    seen = await node.until(lambda seen: seen["devices"][0].get("presence") == "Missing")
    assert (seen["total"], seen["allocated"], holdings(seen)) == (2, 1, {"one/c0": ["d0"]})
    await node.delete_pod("one")
    await node.until_numbers(total=1, allocated=0, available=1)
