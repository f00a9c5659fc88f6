"""The agent's program with `--delivery kubelet`: a real API server, and the kubelet's own device manager as the allocator."""

import asyncio

import pytest
from nodedevice_api.names import Condition, Reason

from tests.fakes.plugin import FakePlugin
from tests.integration.agent_process import GPU, AgentNode, condition, holdings
from tests.oracle.kubelet import Kubelet
from tests.oracle.steps import Ctr, Machine


class KubeletNode:
    """An agent node with a kubelet beside it."""

    def __init__(self, node: AgentNode, kubelet: Kubelet) -> None:
        self.node, self.kubelet = node, kubelet

    def start_agent(self) -> None:
        self.node.start_agent({"--delivery": "kubelet", "--kubelet-dir": str(self.node.folder / "k")})

    async def admitted(self, name: str) -> str:
        """A pod that is bound here and that the kubelet admits. Returns its uid."""
        uid = await self.node.pod(name)
        assert (await self.kubelet.admit(uid, [Ctr(limits={GPU: 1})])).is_admitted
        return uid

    async def return_plugin(self, plugin: FakePlugin) -> None:
        """A plugin that registers with a restarted agent."""
        await self.node.agent.until_logged("serving device plugins")
        await plugin.stop()
        await plugin.join(self.node.plugin_dir)


@pytest.fixture
def kubelet_node(agent_node: AgentNode, kubelet: Kubelet) -> KubeletNode:
    """With its agent running."""
    node = KubeletNode(agent_node, kubelet)
    node.start_agent()
    return node


async def test_the_allocations_of_the_kubelet_are_published(kubelet_node: KubeletNode) -> None:
    node = kubelet_node.node
    await node.plugin(3)
    await kubelet_node.kubelet.until_numbers(GPU, 3, 3)
    seen = await node.until(lambda seen: condition(seen, Condition.INJECTABLE)["status"] == "True")
    assert condition(seen, Condition.INJECTABLE)["reason"] == Reason.KUBELET_REGISTERED
    assert seen["agent"]["delivery"] == "kubelet"
    uid = await kubelet_node.admitted("one")
    seen = await node.until_numbers(total=3, allocated=1, available=2)
    assert holdings(seen) == {"one/c0": ["d0"]}
    assert seen["allocations"][0]["podUID"] == uid
    await node.delete_pod("one")
    await node.until_numbers(total=3, allocated=0, available=3)


async def test_cordons_reach_the_kubelet(kubelet_node: KubeletNode) -> None:
    node = kubelet_node.node
    await node.plugin(3)
    await kubelet_node.kubelet.until_numbers(GPU, 3, 3)
    await kubelet_node.admitted("one")
    await node.until_numbers(total=3, allocated=1, available=2)
    await node.edit({"spec": {"cordonedDevices": [{"id": "d0"}, {"id": "d1"}]}})
    await kubelet_node.kubelet.until_numbers(GPU, 3, 2)
    await node.until_numbers(total=3, allocated=1, available=1)
    await node.delete_pod("one")
    await kubelet_node.kubelet.until_numbers(GPU, 3, 1)


async def test_a_restarted_agent_reads_what_happened_meanwhile(kubelet_node: KubeletNode) -> None:
    node = kubelet_node.node
    plugin = await node.plugin(3)
    await kubelet_node.kubelet.until_numbers(GPU, 3, 3)
    await kubelet_node.admitted("stays")
    await kubelet_node.admitted("goes")
    await node.until_numbers(total=3, allocated=2, available=1)
    node.agent.kill()
    await node.delete_pod("goes")
    kubelet_node.start_agent()
    await kubelet_node.return_plugin(plugin)
    seen = await node.until_numbers(total=3, allocated=1, available=2)
    assert holdings(seen) == {"stays/c0": ["d0"]}
    await kubelet_node.kubelet.until_numbers(GPU, 3, 3)


async def test_a_missing_kubelet_is_reported_with_the_remedy(kubelet_node: KubeletNode) -> None:
    node = kubelet_node.node
    await kubelet_node.kubelet.stop()
    await asyncio.to_thread((kubelet_node.kubelet.plugin_dir / "kubelet.sock").unlink, missing_ok=True)
    await node.plugin(1)
    seen = await node.until(lambda seen: condition(seen, Condition.INJECTABLE)["reason"] == Reason.KUBELET_UNREACHABLE)
    injectable = condition(seen, Condition.INJECTABLE)
    assert injectable["status"] == "False"
    assert "--kubelet-dir" in injectable["message"]
    await kubelet_node.kubelet.start(Machine())
    await node.until(lambda seen: condition(seen, Condition.INJECTABLE)["status"] == "True")
