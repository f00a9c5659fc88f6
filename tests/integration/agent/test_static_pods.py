"""Static pods beside pods of a tenant who may create pods for a node and patch them: kubectl and the agent on a real API server."""

import asyncio

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.integration.agent_process import AgentNode, holdings
from tests.integration.nri import by_nri, container, sandbox
from tests.integration.product_process import PATIENCE_SECONDS

HASH = "0123456789abcdef0123456789abcdef"
HASHES = [f"{number:032x}" for number in range(7)]


def mirrors(config_hash: str) -> dict[str, str]:
    """The annotations of a mirror pod."""
    return {
        "kubernetes.io/config.mirror": config_hash,
        "kubernetes.io/config.hash": config_hash,
        "kubernetes.io/config.source": "file",
    }


async def create_container(connection: PluginConnection, node: AgentNode, number: int = 1) -> bool:
    """Whether the container of the static pod was given its device."""
    adjusted = await connection.create_container(sandbox(HASH, "static", node.namespace), container(HASH, number))
    return "nodedevice.io/devices" in adjusted.annotations


async def until_created(connection: PluginConnection, node: AgentNode) -> None:
    """The same, once the agent's watch has brought the mirror pod."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await create_container(connection, node):
            await asyncio.sleep(0.05)


async def patch_hash(node: AgentNode, name: str, config_hash: str) -> None:
    args = ["annotate", "pod", name, "-n", node.namespace, "--overwrite", f"kubernetes.io/config.hash={config_hash}"]
    await asyncio.to_thread(node.control_plane.kubectl, *args)


async def test_a_tenant_gains_nothing_by_annotations(agent_node: AgentNode, runtime: FakeRuntime) -> None:
    node = agent_node
    node.start_agent(by_nri(node))
    connection = await runtime.plugin()
    await node.free_plugin(3)
    uid = await node.pod("static", annotations=mirrors(HASH))
    await until_created(connection, node)
    seen = await node.until_numbers(total=3, allocated=1, available=2)
    assert [(entry["name"], entry["podUID"]) for entry in seen["allocations"]] == [("static", uid)]

    # one pod with ever new hashes, that of the static pod among them
    await node.pod("evil", annotations=mirrors(HASHES[0]))
    for config_hash in (*HASHES[1:], HASH):
        await patch_hash(node, "evil", config_hash)
    await node.pod("thief", annotations=mirrors(HASH))
    # what comes afterwards is served, and published
    await node.pod("honest")
    seen = await node.until_numbers(total=3, allocated=2, available=1)
    assert holdings(seen) == {"static/c0": ["d0"], "honest/c0": ["d1"]}

    for name in ("evil", "thief"):
        await node.delete_pod(name)
    await node.pod("next", [2])
    seen = await node.until(lambda status: bool(status["waiting"]))
    assert (holdings(seen), seen["releasing"]) == ({"static/c0": ["d0"], "honest/c0": ["d1"]}, 0)
    # it may start again with its device
    assert await create_container(connection, node, 2)

    # its own end is one
    await node.delete_pod("static")
    await node.until(lambda status: status["releasing"] == 1)
    for number in (1, 2):
        ended = sandbox(HASH, "static", node.namespace), container(HASH, number)
        await connection.container_event("StopContainer", *ended)
    seen = await node.until(lambda status: "next/c0" in holdings(status))
    assert holdings(seen) == {"honest/c0": ["d1"], "next/c0": ["d0", "d2"]}


async def test_where_nothing_is_injected_one_object_is_one_pod(agent_node: AgentNode) -> None:
    agent_node.start_agent()
    await agent_node.free_plugin(8)
    uid = await agent_node.pod("evil", annotations=mirrors(HASHES[0]))
    for config_hash in HASHES[1:]:
        await patch_hash(agent_node, "evil", config_hash)
    await agent_node.pod("honest")
    seen = await agent_node.until_numbers(total=8, allocated=2, available=6)
    assert [entry["podUID"] for entry in seen["allocations"] if entry["name"] == "evil"] == [uid]
    await agent_node.delete_pod("evil")
    seen = await agent_node.until_numbers(total=8, allocated=1, available=7)
    assert list(holdings(seen)) == ["honest/c0"]
