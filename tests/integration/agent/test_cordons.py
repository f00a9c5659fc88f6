"""Cordons that outlive their object, on a real API server: the agent keeps them, and the operator sets them again."""

import asyncio
from typing import Any

from nodedevice_api.names import CORDONS_FIELD_MANAGER, node_device_name

from tests.cluster.api import Node, NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.agent_process import GPU, AgentNode, holdings, until
from tests.integration.operator_process import OperatorProcess

FAN = {"id": "d0", "reason": "fan", "by": "alice", "at": "2026-01-01T12:00:00Z"}


def remembered(status: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = status["rememberedCordons"]
    return found


async def cordoned(node: AgentNode) -> str:
    """d0 of two is out of service. Returns the object's UID."""
    await node.free_plugin(2)
    await node.edit({"spec": {"cordonedDevices": [FAN]}})
    seen = await node.until(lambda seen: seen["cordoned"] == 1)
    assert [device.get("cordonedBy") for device in seen["devices"]] == ["alice", None]
    return str(node.object()["metadata"]["uid"])


async def delete_object(node: AgentNode) -> None:
    await asyncio.to_thread(node.client.delete, NodeDevice, node_device_name(node.name, GPU))


async def test_the_agent_keeps_them_until_the_new_object_has_them(node: AgentNode) -> None:
    uid = await cordoned(node)
    await delete_object(node)
    await node.pod("one")
    seen = await node.until(lambda seen: seen["allocated"] == 1)
    assert holdings(seen) == {"one/c0": ["d1"]}
    assert (seen["cordoned"], remembered(seen)) == (1, [FAN])
    assert node.object()["metadata"]["uid"] != uid
    await node.edit({"spec": {"cordonedDevices": [FAN]}})
    await node.until(lambda seen: remembered(seen) == [] and seen["cordoned"] == 1)
    await node.edit({"spec": {"cordonedDevices": []}})
    await node.until_numbers(total=2, allocated=1, available=1)


async def test_also_when_node_and_object_go_while_the_agent_is_away(node: AgentNode, installed: ControlPlane) -> None:
    await cordoned(node)
    node.agent.kill()
    # first the object: once its Node is gone, the garbage collector may be quicker
    await delete_object(node)
    await asyncio.to_thread(node.client.delete, Node, node.name)
    await asyncio.to_thread(installed.add_node, node.name, wait_ready=False)
    node.start_agent()
    await node.pod("one")
    seen = await node.until(lambda seen: seen["allocated"] == 1)
    assert holdings(seen) == {"one/c0": ["d1"]}
    assert remembered(seen) == [FAN]


async def test_the_operator_sets_them_again(node: AgentNode, operator: OperatorProcess) -> None:
    await cordoned(node)
    await delete_object(node)

    def is_set() -> bool:
        return bool(node.object().get("spec", {}).get("cordonedDevices"))

    await until(is_set, lambda: f"the spec is {node.object().get('spec')}")
    found = node.object()
    assert found["spec"]["cordonedDevices"] == [FAN]
    assert CORDONS_FIELD_MANAGER in {entry["manager"] for entry in found["metadata"]["managedFields"]}
    await node.until(lambda seen: remembered(seen) == [] and seen["cordoned"] == 1)
    await node.edit({"spec": {"cordonedDevices": None}})
    await node.until_numbers(total=2, allocated=0, available=2)
    assert "cordonedDevices" not in node.object()["spec"]
