"""The agent, while its system calls fail.

FAULTS_SEED: which cases; without it new ones, printed. FAULTS_SHARE: how many of all (0.1). FAULTS_ONLY: a pattern of their names.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.agent_process import AgentNode
from tests.robustness.faults.agent_scene import AgentScene, agent_scene
from tests.robustness.faults.strace import Strace
from tests.robustness.faults.trial import CONSTANTS, survives

# In each round the runtime goes away, and all watches are cut; streams of a plugin end in many cases.
QUICK: Final = {
    "nodedevice_agent.nri.connector.LONGEST_PAUSE_SECONDS": 0.2,
    "nodedevice_agent.deviceplugin.redial.MOST_REDIAL_SECONDS": 1.0,
    "nodedevice_kube.list_watch.STABLE_SECONDS": 1.0,
}


async def test_the_agent_survives_what_the_system_refuses(
    installed: ControlPlane,
    proxy: FaultProxy,
    namespace: str,
    strace: Strace,
    tmp_path_factory: pytest.TempPathFactory,
    subtests: pytest.Subtests,
) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[AgentScene]:
        name = f"faults-{uuid.uuid4().hex[:8]}"
        await asyncio.to_thread(installed.add_node, name, wait_ready=False)
        # a short path: sockets lie below it
        node = AgentNode(installed, namespace, name, tmp_path_factory.mktemp("f"))
        node.constants |= CONSTANTS | QUICK
        try:
            async with agent_scene(node, proxy) as scene:
                yield scene
        finally:
            await node.close()

    await survives(opened, strace, subtests)
