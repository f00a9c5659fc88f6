"""The real agent with `allocateRetry: never`: one Allocate call for a container, over kill -9 and a lost checkpoint."""

import asyncio
import signal

import grpc
import pytest
from nodedevice_agent.nri.ttrpc import CallFailed

from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.plugin import FakePlugin, RpcFailure
from tests.integration.agent_process import GPU, AgentNode, holdings
from tests.integration.nri import by_nri, container, sandbox
from tests.integration.product_process import Json

NEVER = {"--allocate-retry": f"{GPU}=never"}
RESTARTED = "a call before the agent's restart led to no allocation"


def final(status: Json) -> dict[str, str]:
    """Messages of the pods that wait for good, by name."""
    return {w["name"]: w["message"] for w in status.get("waiting", ()) if w.get("final")}


async def until_final(node: AgentNode, name: str, why: str) -> None:
    """Until the pod waits for good, and the message ends with that."""
    status = await node.until(lambda seen: final(seen).get(name, "").endswith(why))
    [reason] = [w["reason"] for w in status["waiting"] if w["name"] == name]
    assert reason == "AllocateFailed"
    assert final(status)[name].startswith("delete the pod: ")


async def killed_and_started(
    node: AgentNode, plugin: FakePlugin, flags: dict[str, str], *, is_lost: bool = False
) -> None:
    """kill -9, and an agent with which the plugin registers. is_lost: without the checkpoint and its journal."""
    await node.agent.stop(signal.SIGKILL)
    if is_lost:
        for path in node.state_dir.glob("checkpoint.json*"):
            path.unlink()
    node.start_agent(flags)
    await node.agent.until_logged("serving device plugins")
    await plugin.stop()
    await plugin.join(node.plugin_dir)


async def test_a_failed_call_is_not_repeated(agent_node: AgentNode) -> None:
    node = agent_node
    node.start_agent(NEVER)
    plugin = await node.free_plugin(2)
    plugin.knobs.allocate_error = RpcFailure(grpc.StatusCode.NOT_FOUND, "no binding pod found on node")
    await node.pod("thief")
    await until_final(node, "thief", "no binding pod found on node")
    await node.agent.until_logged("Allocate failed; not retrying")
    plugin.knobs.allocate_error = None
    await node.pod("next")
    await node.until(lambda seen: list(holdings(seen)) == ["next/c0"])
    assert len(plugin.calls_of("Allocate")) == 2
    await killed_and_started(node, plugin, NEVER)
    await until_final(node, "thief", RESTARTED)
    await node.delete_pod("thief")
    await node.until(lambda seen: not seen.get("waiting"))
    # another pod of that name is another pod
    await node.pod("thief")
    await node.until(lambda seen: sorted(holdings(seen)) == ["next/c0", "thief/c0"])
    assert len(plugin.calls_of("Allocate")) == 3


async def test_a_call_in_flight_when_the_agent_is_killed_counts(agent_node: AgentNode) -> None:
    node = agent_node
    node.start_agent(NEVER)
    plugin = await node.free_plugin(2)
    plugin.knobs.allocate_gate = asyncio.Event()
    await node.pod("train")
    await plugin.wait_for_calls("Allocate")
    plugin.knobs.allocate_gate = None
    await killed_and_started(node, plugin, NEVER)
    await until_final(node, "train", RESTARTED)
    await node.pod("next")
    await node.until(lambda seen: list(holdings(seen)) == ["next/c0"])
    assert len(plugin.calls_of("Allocate")) == 2


@pytest.mark.parametrize("retry", ["never", "always"])
async def test_a_lost_checkpoint(agent_node: AgentNode, runtime: FakeRuntime, retry: str) -> None:
    """With always the plugin is called again for each of the pods."""
    node = agent_node
    flags = {"--allocate-retry": f"*={retry}", **by_nri(node)}
    node.start_agent(flags)
    await runtime.plugin()
    plugin = await node.plugin(2)
    await node.until(lambda seen: seen.get("available") == 2)
    uid = await node.pod("held")
    await node.until(lambda seen: list(holdings(seen)) == ["held/c0"])
    plugin.knobs.allocate_error = RpcFailure()
    await node.pod("failed")
    await node.until(lambda seen: bool(seen.get("waiting")))
    plugin.knobs.allocate_error = None
    before = len(plugin.calls_of("Allocate"))
    await killed_and_started(node, plugin, flags, is_lost=True)
    if retry == "always":
        await node.until(lambda seen: sorted(holdings(seen)) == ["failed/c0", "held/c0"])
        await plugin.wait_for_calls("Allocate", before + 2)
        return
    await until_final(node, "failed", "it is not known whether it was called")
    status = await node.until(lambda seen: list(holdings(seen)) == ["held/c0"])
    # its container may run
    assert list(final(status)) == ["failed"]
    connection = await runtime.plugin()
    with pytest.raises(CallFailed, match="delete the pod"):
        await connection.create_container(sandbox(uid, "held"), container(uid))
    await until_final(node, "held", "was lost with the checkpoint")
    assert len(plugin.calls_of("Allocate")) == before
