"""A release whose built-in plugins write other IDs of parts takes over from one that a kubelet has had parts of."""

import asyncio
from typing import Any

import pytest
import yaml
from nodedevice_api.parts import OLD_SEPARATOR, part_id

from tests.fakes.plugin import FakeDevice
from tests.integration.agent_process import GPU, AgentNode, holdings
from tests.oracle.kubelet import Kubelet
from tests.oracle.steps import Ctr

OLD = [f"gpu-{device}-{number}" for device in range(2) for number in range(2)]


async def admitted(node: AgentNode, kubelet: Kubelet, name: str) -> bool:
    found = await kubelet.admit(await node.pod(name), [Ctr(limits={GPU: 1})])
    return found.is_admitted


def parts_of(seen: dict[str, Any]) -> list[str]:
    """All that are held, by their IDs; of each physical device a pod has one."""
    entries = [entry for held in seen.get("allocations", ()) for entry in held.get("parts", ())]
    return sorted(part_id(entry["parent"], int(entry["numbers"]), entry.get("sep", OLD_SEPARATOR)) for entry in entries)


async def kubelet_has(kubelet: Kubelet, capacity: int, allocatable: int) -> None:
    """Of several plugins, one after the other."""
    async with asyncio.timeout(60):
        while (await kubelet.numbers()).get(GPU) != (capacity, allocatable):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("keeps_state", [True, False], ids=["with its checkpoint", "without a checkpoint"])
async def test_a_part_that_a_pod_has_by_its_old_id_is_given_to_nobody_else(
    agent_node: AgentNode, kubelet: Kubelet, keeps_state: bool
) -> None:
    flags = {"--delivery": "kubelet", "--kubelet-dir": str(agent_node.folder / "k")}
    agent_node.start_agent(flags)
    # an earlier release's list
    plugin = await agent_node.plugin({device_id: FakeDevice() for device_id in OLD})
    await kubelet.until_numbers(GPU, 4, 4)
    assert await admitted(agent_node, kubelet, "old")
    seen = await agent_node.until_numbers(total=4, allocated=1, available=3)
    (held,) = holdings(seen)["old/c0"]
    agent_node.agent.kill()
    await plugin.stop()
    if not keeps_state:
        for file in agent_node.state_dir.glob("checkpoint.json*"):
            file.unlink()
    config = agent_node.folder / "config.yaml"
    simulated = [{"resourceName": GPU, "idPrefix": "gpu", "count": 2, "partsPerDevice": 2}]
    config.write_text(yaml.safe_dump({"plugins": {"simulated": simulated}}))
    agent_node.start_agent({**flags, "--config": str(config)})
    # the new agent's status: it shows parts as such
    await agent_node.until(lambda seen: parts_of(seen) == [held])
    await kubelet_has(kubelet, 4, 4)
    for name in ("one", "two", "three"):
        assert await admitted(agent_node, kubelet, name)
    assert not await admitted(agent_node, kubelet, "four")
    seen = await agent_node.until_numbers(total=4, allocated=4, available=0)
    assert sorted(part.replace("::", "-") for part in parts_of(seen)) == OLD
