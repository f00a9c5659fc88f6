"""Agents of two nodes, for what the admission policy lets them write; and an agent beside a kubelet."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from nodedevice_api.names import AGENT_FIELD_MANAGER

from tests.cluster.accounts import client_of_pod, client_with_token
from tests.cluster.api import Client, PodDevice
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.pod_resources import PodResources
from tests.integration.agent.two_agents import OTHER, A, B, body, owner, publishing
from tests.integration.agent_process import AgentNode
from tests.integration.crds.custom_resources import is_refused
from tests.oracle.kubelet import Kubelet, way_to_mount
from tests.oracle.steps import Machine

ACCOUNT = "nodedevice-agent"
EVERYTHING = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: test-everything-of-ours}}
rules:
- {{apiGroups: [nodedevice.io], resources: ["*"], verbs: ["*"]}}
- {{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: test-everything-of-ours}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-everything-of-ours}}
subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: {SYSTEM_NAMESPACE}}}]
"""


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> Iterator[ControlPlane]:
    """Two nodes, and the agents' account with every right on our kinds and on Leases, in every namespace."""
    installed.add_nodes([A, B], wait_ready=False)
    installed.apply(EVERYTHING)
    yield installed
    installed.kubectl("delete", "-f", "-", stdin=EVERYTHING)
    for node in (A, B):
        installed.remove_node(node)
    can = ["auth", "can-i", "delete", "nodedevices", "--as", f"system:serviceaccount:{SYSTEM_NAMESPACE}:{ACCOUNT}"]
    wait_until(lambda: installed.kubectl(*can, check=False).strip() == "no", "the agents' rights are the chart's")


@pytest.fixture(scope="module")
def agents(cluster: ControlPlane) -> Iterator[dict[str, Client]]:
    """By node: a client with the token of an agent's pod there. "": one whose token names no node."""
    with ExitStack() as clients:
        found = {
            node: clients.enter_context(client_of_pod(cluster, SYSTEM_NAMESPACE, ACCOUNT, node, AGENT_FIELD_MANAGER))
            for node in (A, B)
        }
        found[""] = clients.enter_context(
            client_with_token(cluster, SYSTEM_NAMESPACE, ACCOUNT, field_manager=AGENT_FIELD_MANAGER)
        )
        agent, of_other = found[A], body([owner(cluster, B)], OTHER, B)
        writes = partial(agent.apply, of_other, field_manager="x", dry_run=True)
        wait_until(lambda: may_read(agent), "the agents' account has every right")
        wait_until(lambda: is_refused(writes, "Policy 'nodedevice-agent'"), "the policy is in force")
        yield found


def may_read(agent: Client) -> bool:
    return not is_refused(lambda: list(agent.list(PodDevice, namespace="default")))


@pytest.fixture
def published(cluster: ControlPlane, agents: dict[str, Client]) -> Iterator[None]:
    """The NodeDevices of both nodes."""
    with publishing(cluster, agents):
        yield


@pytest.fixture
async def pod_resources(agent_node: AgentNode) -> AsyncIterator[PodResources]:
    """Of the kubelet of that node."""
    async with PodResources(agent_node.folder / "k/pod-resources/kubelet.sock") as resources:
        yield resources


@pytest.fixture
async def kubelet(agent_node: AgentNode, pod_resources: PodResources) -> AsyncIterator[Kubelet]:
    """Running beside the agent of that node, which ends first; --kubelet-dir is k in the node's folder."""
    way = way_to_mount()
    if way is None:
        pytest.skip("the kubelet's device manager needs a mount namespace: run as root, or allow user namespaces")
    folder = agent_node.folder / "k/device-plugins"
    folder.mkdir(parents=True)
    async with Kubelet(folder, way) as kubelet:
        await kubelet.start(Machine())
        yield kubelet
        agent_node.agent.kill()
