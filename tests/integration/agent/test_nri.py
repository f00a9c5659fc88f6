"""The agent with --delivery nri: the runtime, releasing devices, containers without theirs, and a runtime without a validator."""

import pytest
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.integration.agent_process import AgentNode, condition, holdings
from tests.integration.nri import PatientRuntime, by_nri, container, nri_socket, sandbox

STATUS = "patch nodedevices/status"
HELD = {"required-plugins.noderesource.dev": "[ nodedevice ]"}


@pytest.fixture
def node(agent_node: AgentNode) -> AgentNode:
    """With its agent running."""
    agent_node.start_agent({**by_nri(agent_node), "--runtime-grace-seconds": "0.5"})
    return agent_node


@pytest.fixture
async def patient_node(agent_node: AgentNode) -> AgentNode:
    """With a plugin, and an agent whose grace period ends in no test, and which repeats no request that is under way."""
    agent_node.constants["nodedevice_agent.kube.client.REQUEST_SECONDS"] = 300.0
    agent_node.start_agent({**by_nri(agent_node), "--runtime-grace-seconds": "300"})
    await agent_node.plugin(1)
    return agent_node


async def pod_with_container(node: AgentNode, connection: PluginConnection, count: int = 1) -> str:
    """Pod `one`, which holds all devices of a new plugin, and whose container has been created. Returns its uid."""
    await node.plugin(count)
    uid = await node.pod("one", [count])
    await node.until_numbers(total=count, allocated=count, available=0)
    await connection.create_container(sandbox(uid, "one"), container(uid))
    return uid


async def test_a_runtime_that_starts_late_and_stops(node: AgentNode) -> None:
    socket = nri_socket(node)
    await node.plugin(1)
    status = await node.until(lambda s: condition(s, "Injectable").get("status") == "False")
    assert condition(status, "Injectable")["reason"] == "NoRuntimeSocket"
    assert str(socket) in condition(status, "Injectable")["message"]
    assert status["agent"]["delivery"] == "nri"
    async with PatientRuntime(socket):
        status = await node.until(lambda s: condition(s, "Injectable")["status"] == "True")
        assert condition(status, "Injectable")["reason"] == "RuntimeConnected"
        assert "containerd v2.4.2" in condition(status, "Injectable")["message"]
        assert "nodedevice_agent_runtime_connected 1.0" in (await node.agent.get("/metrics"))[1]
    status = await node.until(lambda s: condition(s, "Injectable")["status"] == "False")
    assert condition(status, "Injectable")["reason"] == "RuntimeDisconnected"


async def test_a_device_is_free_when_its_container_has_ended(node: AgentNode, runtime: FakeRuntime) -> None:
    connection = await runtime.plugin()
    uid = await pod_with_container(node, connection)
    await node.delete_pod("one")
    seen = await node.until(lambda s: s["releasing"] == 1)
    assert (seen["allocated"], seen["available"]) == (0, 0)
    assert seen["allocations"][0]["releasing"]
    await connection.container_event("StopContainer", sandbox(uid, "one"), container(uid))
    await node.until_numbers(total=1, allocated=0, available=1)


async def test_a_container_that_the_runtime_leaves_out_of_its_list(node: AgentNode, runtime: FakeRuntime) -> None:
    """As containerd does while a shim does not respond: the process may live on, and its pod was deleted by force."""
    connection = await runtime.plugin()
    uid = await pod_with_container(node, connection)
    await connection.close()
    await runtime.plugin()
    line = await node.agent.until_logged("runtime does not list a container that it ran; keeping its devices")
    assert line["container_id"] == container(uid).id
    await node.delete_pod("one")
    await node.pod("two")
    seen = await node.until(lambda s: s["releasing"] == 1 and bool(s["waiting"]))
    assert holdings(seen) == {"one/c0": ["d0"]}
    # over a restart of the agent, too
    node.agent.kill()
    node.agent.start()
    connection = await runtime.plugin()
    await node.agent.until_ready()
    assert holdings(node.status()) == {"one/c0": ["d0"]}
    await connection.container_event("RemoveContainer", sandbox(uid, "one"), container(uid))
    seen = await node.until(lambda s: s["releasing"] == 0 and s["allocated"] == 1)
    assert holdings(seen) == {"two/c0": ["d0"]}


async def test_a_container_without_its_devices_is_reported(node: AgentNode, runtime: FakeRuntime) -> None:
    connection = await runtime.plugin()
    uid = await node.pod("early")
    # its name is not managed here yet: nothing is asked of us
    assert await connection.create_container(sandbox(uid, "early"), container(uid)) == api_pb2.ContainerAdjustment()
    await connection.container_event("PostStartContainer", sandbox(uid, "early"), container(uid))
    await node.plugin(1)
    seen = await node.until(lambda s: any(a.get("notInjected") for a in s.get("allocations", ())))
    assert holdings(seen) == {"early/c0": ["d0"]}
    assert condition(seen, "Injectable")["reason"] == "DevicesNotInjected"
    assert f"{node.namespace}/early" in condition(seen, "Injectable")["message"]
    await node.agent.until_logged("container runs without its devices; restart its pod")
    metric = 'nodedevice_agent_containers_without_devices{resource_name="example.com/gpu"}'
    assert f"{metric} 1.0" in (await node.agent.get("/metrics"))[1]
    await connection.container_event("StopContainer", sandbox(uid, "early"), container(uid))
    await node.until(lambda s: condition(s, "Injectable")["reason"] == "RuntimeConnected")


async def test_a_pod_requiring_the_plugin_is_refused_without_devices(node: AgentNode, runtime: FakeRuntime) -> None:
    connection = await runtime.plugin()
    uid = await node.pod("one")
    await node.agent.until_logged("pod requests a resource that no device plugin has registered yet")
    with pytest.raises(CallFailed, match=r"no device plugin has registered example\.com/gpu"):
        await connection.create_container(sandbox(uid, "one", annotations=HELD), container(uid))
    await node.plugin(1)
    await node.until_numbers(total=1, allocated=1, available=0)
    await connection.create_container(sandbox(uid, "one", annotations=HELD), container(uid, 2))
    assert "nodedevice_agent_containers_refused_total 1.0" in (await node.agent.get("/metrics"))[1]


# -- the condition Injectable


async def create_without_devices(connection: PluginConnection) -> None:
    """The validators are asked all the same."""
    await connection.create_container(sandbox("plain", "plain"), container("plain"))
    assert await connection.validate(sandbox("plain", "plain"), container("plain")) == ""


async def test_a_disabled_validator_is_reported_and_nothing_else_written(
    patient_node: AgentNode, runtime: FakeRuntime
) -> None:
    connection = await runtime.plugin()
    await create_without_devices(connection)
    seen = await patient_node.until(lambda s: condition(s, "Injectable").get("message", "").endswith("is on"))
    before = patient_node.writes().count(STATUS)
    await create_without_devices(connection)
    await connection.close()
    connection = await runtime.plugin()
    runtime.validator = False
    await create_without_devices(connection)
    after = await patient_node.until(lambda s: condition(s, "Injectable")["reason"] == "NoDefaultValidator")
    assert condition(after, "Injectable")["status"] == "True"
    assert "docs/install.md" in condition(after, "Injectable")["message"]
    assert patient_node.writes().count(STATUS) == before + 1
    since = [condition(status, "Injectable")["lastTransitionTime"] for status in (seen, after)]
    assert since[0] == since[1], "it was injectable all the time"
