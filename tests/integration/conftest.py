"""Fixtures that tests of more than one file here share."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.dra import Slices
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.nri_runtime import FakeRuntime
from tests.integration.agent_process import AgentNode
from tests.integration.configured_node import ConfiguredNode
from tests.integration.nri import PatientRuntime, nri_socket
from tests.integration.operator_process import OperatorProcess, PlayedNode, PlayNode


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


@pytest.fixture
def node(agent_node: AgentNode) -> AgentNode:
    """That Node, with its agent running."""
    agent_node.start_agent()
    return agent_node


@pytest.fixture
async def runtime(agent_node: AgentNode) -> AsyncIterator[FakeRuntime]:
    """The container runtime of the Node, for an agent that is started with by_nri()."""
    async with PatientRuntime(nri_socket(agent_node)) as runtime:
        yield runtime


@pytest.fixture
async def configured(agent_node: AgentNode) -> AsyncIterator[ConfiguredNode]:
    found = ConfiguredNode(agent_node)
    await found.label(agent_node.name)
    yield found
    await found.close()


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One for each file, with the usual options; a file that wants other ones has its own."""
    with OperatorProcess(installed, tmp_path_factory.mktemp("operator")).running() as running:
        yield running


@pytest.fixture
def slices(installed: ControlPlane) -> Iterator[Slices]:
    """Of DRA drivers."""
    found = Slices(installed.client)
    yield found
    found.remove()


@pytest.fixture
def proxy(installed: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy(installed.admin_kubeconfig) as made:
        yield made


@pytest.fixture
def operator_by_proxy(installed: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[OperatorProcess]:
    """One that reaches the API server by the proxy, and is ready."""
    made = OperatorProcess(installed, tmp_path)
    made.reach_by(proxy.url)
    with made.running():
        yield made


@pytest.fixture
def played(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayNode]:
    """Makes Nodes beside that operator, and takes them away again."""
    with contextlib.ExitStack() as made:
        yield lambda: made.enter_context(PlayedNode(installed))
