"""The agent with --runtime nri: the condition Injectable for a runtime that rejects it, is too old, or has no validator."""

from pathlib import Path

import pytest
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.integration.agent_process import AgentNode, condition
from tests.integration.product_process import Json

SANDBOX = api_pb2.PodSandbox(id="s", name="plain", namespace="n", uid="plain")
STATUS = "patch nodedevices/status"
CONTAINER = api_pb2.Container(id="c", pod_sandbox_id="s", name="main")


@pytest.fixture
def socket(agent_node: AgentNode) -> Path:
    return agent_node.folder / "nri.sock"


@pytest.fixture
async def node(agent_node: AgentNode, socket: Path) -> AgentNode:
    """With its agent running. The grace period is long: tests that wait for its end set another."""
    agent_node.start_agent({"--runtime": "nri", "--nri-socket": str(socket), "--runtime-grace-seconds": "300"})
    await agent_node.plugin(1)
    return agent_node


async def until_condition(node: AgentNode, status: str, reason: str, words: str = "") -> str:
    """The message that comes with these, and has these words."""

    def is_reported(shown: Json) -> bool:
        found = condition(shown, "Injectable")
        return (found.get("status"), found.get("reason")) == (status, reason) and words in found["message"]

    return str(condition(await node.until(is_reported), "Injectable")["message"])


async def create(connection: PluginConnection) -> None:
    """A container that asks for nothing: the validators are asked all the same."""
    await connection.create_container(SANDBOX, CONTAINER)
    assert await connection.validate(SANDBOX, CONTAINER) == ""


async def test_a_runtime_that_rejects_the_agent_counts_as_disconnected(agent_node: AgentNode, socket: Path) -> None:
    node = agent_node
    node.start_agent({"--runtime": "nri", "--nri-socket": str(socket), "--runtime-grace-seconds": "0.5"})
    await node.plugin(1)
    runtime = FakeRuntime(socket)
    async with runtime:
        await runtime.plugin()
        await until_condition(node, "True", "RuntimeConnected")
        runtime.rejects = True
        await runtime.connections[0].close()
        # at first the connection is lost, which may be seen as well
        await until_condition(node, "False", "RuntimeDisconnected", "its log has the reason")
        for _ in range(2):
            assert isinstance(await runtime.failed.get(), CallFailed)
        runtime.rejects = False
        await until_condition(node, "True", "RuntimeConnected")


async def test_containerd_2_1_is_connected_and_reported_to_fail_open(node: AgentNode, socket: Path) -> None:
    runtime = FakeRuntime(socket)
    runtime.version, runtime.known_events = "v2.1.4", (1 << 13) - 1
    async with runtime:
        assert "containerd v2.1.4; it has no default_validator" in await until_condition(
            node, "True", "NoDefaultValidator"
        )
        await (await runtime.plugin()).create_container(SANDBOX, CONTAINER)


async def test_a_disabled_validator_is_reported_and_nothing_else_is_written(node: AgentNode, socket: Path) -> None:
    runtime = FakeRuntime(socket)
    async with runtime:
        connection = await runtime.plugin()
        await create(connection)
        seen = await node.until(lambda s: condition(s, "Injectable").get("message", "").endswith("is on"))
        before = node.writes().count(STATUS)
        await create(connection)
        await connection.close()
        connection = await runtime.plugin()
        runtime.validator = False
        await create(connection)
        assert "docs/install.md" in await until_condition(node, "True", "NoDefaultValidator")
    after = await node.until(lambda s: condition(s, "Injectable")["reason"] == "NoDefaultValidator")
    assert node.writes().count(STATUS) == before + 1
    since = [condition(status, "Injectable")["lastTransitionTime"] for status in (seen, after)]
    assert since[0] == since[1], "it was injectable all the time"
