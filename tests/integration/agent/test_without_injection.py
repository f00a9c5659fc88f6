"""What an agent advertises whose devices reach no container, with the real operator: nothing, unless that was asked for."""

from pathlib import Path

from tests.integration.agent_process import AgentNode, condition
from tests.integration.operator_process import OperatorProcess


async def test_nothing_with_runtime_none(agent_node: AgentNode, operator: OperatorProcess) -> None:
    agent_node.start_agent({"--delivery": "none"})
    await agent_node.plugin(2)
    seen = await agent_node.until(lambda seen: condition(seen, "Ready").get("reason") == "RuntimeNone")
    ready, injectable = condition(seen, "Ready"), condition(seen, "Injectable")
    assert (ready["status"], injectable["status"]) == ("False", "False")
    assert "--delivery auto" in injectable["message"]
    assert condition(seen, "Advertised")["reason"] == "NotInjectable"
    assert agent_node.capacity() is None
    assert (seen["total"], seen["available"]) == (2, 2)


async def test_the_default_is_auto(agent_node: AgentNode, operator: OperatorProcess, tmp_path: Path) -> None:
    """On a node with neither an NRI socket nor a kubelet: pods that nobody would serve are not attracted."""
    agent_node.start_agent(
        {"--delivery": "", "--kubelet-dir": str(tmp_path), "--nri-socket": str(tmp_path / "nri.sock")}
    )
    await agent_node.plugin(2)
    seen = await agent_node.until(lambda seen: condition(seen, "Ready").get("reason") == "KubeletUnreachable")
    assert (seen["agent"]["delivery"], condition(seen, "Ready")["status"]) == ("kubelet", "False")
    assert agent_node.capacity() is None
    assert (agent_node.state_dir / "delivery").read_text() == "kubelet\n"
