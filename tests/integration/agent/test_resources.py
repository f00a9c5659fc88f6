"""The agent with real plugins: the published status, and edits by other clients."""

import asyncio
import json

import pytest
from nodedevice_api.device_ids import shown_id
from nodedevice_api.names import node_device_name

from tests.fakes.plugin import FakeDevice
from tests.integration.agent_process import GPU, AgentNode, condition, holdings


async def test_a_registration_shows_and_belongs_to_the_node(node: AgentNode) -> None:
    await node.plugin({"d0": FakeDevice(numa_nodes=(1,)), "d1": FakeDevice(healthy=False)}, preferred_available=True)
    seen = await node.until_numbers(total=2, allocated=0, available=1)
    listed = [(d["id"], d["health"], d.get("numaNodes")) for d in seen["devices"]]
    assert listed == [("d0", "Healthy", [1]), ("d1", "Unhealthy", None)]
    assert (seen["endpoint"]["state"], seen["endpoint"]["getPreferredAllocationAvailable"]) == ("Running", True)
    assert {kind: condition(seen, kind)["status"] for kind in ("Registered", "Healthy", "Injectable")} == {
        "Registered": "True",
        "Healthy": "False",
        "Injectable": "Unknown",
    }
    found = node.object()
    assert found["spec"] == {"nodeName": node.name, "resourceName": GPU}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", node.name)
    managers = {(m["manager"], m.get("subresource")) for m in found["metadata"]["managedFields"]}
    assert managers == {("nodedevice-agent", None), ("nodedevice-agent", "status")}


@pytest.mark.kubelet("weak spot 7")
async def test_a_new_version_of_a_plugin_takes_over_without_a_gap(node: AgentNode) -> None:
    old = await node.free_plugin(2)
    await node.free_plugin(3, socket_name="new.sock")
    await old.stop()
    await node.agent.until_logged("device plugin disconnected")
    seen = await node.until_numbers(total=3, allocated=0, available=3)
    assert seen["endpoint"]["state"] == "Running"


async def test_a_list_with_which_all_plugins_list_too_many_is_refused_whole(agent_node: AgentNode) -> None:
    node, nic = agent_node, "example.com/nic"
    node.constants["nodedevice_agent.devicemanager.resources.devices.MAX_DEVICES"] = 1311
    node.start_agent()
    await node.free_plugin(1000)
    plugin = await node.free_plugin(310, nic)
    await plugin.update({f"d{index}": FakeDevice() for index in range(312)})
    seen = await node.until(lambda seen: condition(seen, "Registered")["reason"] == "DevicesRefused", nic)
    assert (seen["total"], seen["available"], condition(seen, "Registered")["status"]) == (310, 310, "True")
    assert (await node.agent.until_logged("invalid device list"))["resource_name"] == nic
    # a small plugin beside them is served, and so is a list that fits
    await node.free_plugin(256, "example.com/small")
    await plugin.update({f"d{index}": FakeDevice() for index in range(300)})
    seen = await node.until_numbers(total=300, allocated=0, available=300, resource_name=nic)
    assert condition(seen, "Registered")["reason"] == "EndpointRunning"


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"total": 3, "devicesOmitted": 1}, id="numbers that fit each other"),
        pytest.param({"devices": None}, id="something taken away"),
        pytest.param({"conditions": []}, id="all conditions taken away"),
    ],
)
async def test_an_edited_status_is_restored(node: AgentNode, edit: dict[str, object]) -> None:
    await node.plugin(2)
    before = await node.until_numbers(total=2, allocated=0, available=2)
    await node.edit({"status": edit}, subresource="status")
    await node.until(lambda seen: _untimed(seen) == _untimed(before))
    line = await node.agent.until_logged("NodeDevice status was modified by another client; restoring it")
    assert line["nodedevice"] == node_device_name(node.name, GPU)


async def test_the_deletion_of_an_object_sticks_once_its_plugin_is_gone(agent_node: AgentNode) -> None:
    agent_node.constants["nodedevice_agent.devicemanager.resources.presence.STOP_GRACE_PERIOD_SECONDS"] = 0.5
    agent_node.start_agent()
    plugin = await agent_node.free_plugin(2)
    await plugin.stop()
    await agent_node.until(lambda seen: seen["endpoint"]["state"] == "Gone")
    name = node_device_name(agent_node.name, GPU)
    await asyncio.to_thread(agent_node.control_plane.kubectl, "delete", "nodedevice", name)
    line = await agent_node.agent.until_logged("resource forgotten: its plugin is gone")
    assert line["resource_name"] == GPU
    # what would create it again is quicker than what creates another one: that takes a registration first
    await agent_node.free_plugin(1, "example.com/later")
    assert agent_node.object() == {}
    assert agent_node.writes().count("patch nodedevices") == 2, "one for each of the resources"
    assert GPU not in (await agent_node.agent.get("/metrics"))[1]
    await plugin.join(agent_node.plugin_dir)
    await agent_node.until_numbers(total=2, allocated=0, available=2)


def _untimed(status: dict[str, object]) -> str:
    """Without time stamps, which may show that something was restored."""
    stamps = ("since", "lastTransitionTime")
    return json.dumps(json.loads(json.dumps(status), object_hook=lambda o: {k: o[k] for k in o if k not in stamps}))


async def test_the_api_takes_any_text_as_a_device_id(node: AgentNode) -> None:
    """Of a plugin with control characters, as smarter-device-manager has them; also after its checkpoint was lost."""
    ids = ("\0", "\1", "", "*", "all", "a\nb", "escaped:%00", "x" * 10_000)
    shown = {str(shown_id(device_id)): device_id for device_id in ids}
    plugin = await node.plugin(dict.fromkeys(ids, FakeDevice()))
    seen = await node.until_numbers(total=8, allocated=0, available=8)
    assert [device["id"] for device in seen["devices"]] == sorted(shown)
    await node.edit({"spec": {"cordonedDevices": [{"id": shown_id("*")}, {"id": "\1"}]}})
    await node.until(lambda seen: seen["cordoned"] == 2)
    await node.pod("one", [6])
    seen = await node.until_numbers(total=8, allocated=6, available=0)
    (held,) = holdings(seen).values()
    assert {shown[device_id] for device_id in held} == {*ids} - {"*", "\1"}
    node.agent.kill()
    for file in node.state_dir.glob("checkpoint*"):
        file.unlink()
    await plugin.stop()
    plugin.calls.clear()
    node.start_agent()
    await node.agent.until_logged("serving device plugins")
    await plugin.join(node.plugin_dir)
    (call,) = await plugin.wait_for_calls("Allocate")
    assert set(call.device_ids) == {*ids} - {"*", "\1"}
    await node.until_numbers(total=8, allocated=6, available=0)
