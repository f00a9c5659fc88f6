"""The container runtime shows containers with very large environments: what the agent's process takes for them at most.

Tenants choose environments; a ConfigMap of 1 MiB may be that of every container of a pod.
"""

from typing import cast

import pytest
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from hack.bench.operator.counts import peak_rss_mib
from tests.fakes.nri_runtime import FakeRuntime, LargeContainers
from tests.integration.agent_process import AgentNode
from tests.integration.nri import by_nri

COUNT, CREATED = 250, 60
BYTES = 1_250_000
# of the chart's 384 MiB
MOST_MIB = 224


@pytest.mark.parametrize("variable", [8, 125_000], ids=["short variables", "long variables"])
async def test_environments_take_no_memory(agent_node: AgentNode, runtime: FakeRuntime, variable: int) -> None:
    # NRI's messages have 4 MiB at the most
    runtime.per_message = 2
    containers = LargeContainers(COUNT, BYTES, variable)
    runtime.containers = cast(list[api_pb2.Container], containers)
    agent_node.start_agent(by_nri(agent_node))
    await agent_node.agent.until_ready()
    plugin = await runtime.plugin()
    line = await agent_node.agent.until_logged("runtime synchronized")
    assert line["containers"] == COUNT
    listed = peak_rss_mib(agent_node.agent.pid)
    for number in range(CREATED):
        pod = api_pb2.PodSandbox(id=f"sandbox-{number}", uid=f"pod-{number}", name=f"p{number}", namespace="n")
        made = containers[number]
        made.id = f"created-{number}"
        assert await plugin.create_container(pod, made) == api_pb2.ContainerAdjustment()
        await plugin.container_event("PostStartContainer", pod, made)
    created = peak_rss_mib(agent_node.agent.pid)
    assert max(listed, created) < MOST_MIB, (listed, created)
