"""Fixtures that tests of more than one file here share."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.integration.agent_process import AgentNode


@pytest.fixture
async def agent_node(
    installed: ControlPlane, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AgentNode]:
    """A Node of its own for the real agent, which is not started yet."""
    name = f"agent-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(installed.add_node, name, wait_ready=False)
    # a short path: sockets lie below it
    node = AgentNode(installed, namespace, name, tmp_path_factory.mktemp("a"))
    yield node
    await node.close()
