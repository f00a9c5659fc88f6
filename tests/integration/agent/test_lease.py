"""Renewals of the Lease against a real API server, at a short interval."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube import lease
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_api.names import AGENTS_NAMESPACE, REFUSALS_ANNOTATION

from tests.cluster.errors import CommandError
from tests.fakes.background import background
from tests.integration.agent_process import AgentNode, until
from tests.integration.product_process import PATIENCE_SECONDS


class RecordedHealth(AgentHealth):
    """`renewals`: whether each renewal reached the API server."""

    def __init__(self) -> None:
        super().__init__("api server")
        self.renewals: list[bool] = []

    def report(self, what: str, problem: str = "") -> None:
        self.renewals.append(not problem)


HOLDER = "0123456789abcdef0123456789abcdef_11111111"
OF_A_COPY = "0123456789abcdef0123456789abcdef_22222222"


class Beating:
    """A lease being renewed; `renewals`: whether each of them reached the API server."""

    def __init__(self, node: AgentNode) -> None:
        self.node = node
        self.time = 1000.0
        self.rejections = Rejections(lambda: self.time)
        self.health = RecordedHealth()
        self.renewals = self.health.renewals

    def keeper(self, cluster: KubeClient) -> LeaseKeeper:
        node, clock = self.node.name, lambda: self.time
        return LeaseKeeper(cluster, AGENTS_NAMESPACE, node, HOLDER, self.rejections, self.health, clock)

    def lease(self) -> dict[str, Any]:
        """Empty while there is none."""
        args = ["get", "lease", self.node.name, "--namespace", AGENTS_NAMESPACE, "-o", "json"]
        try:
            found: dict[str, Any] = json.loads(self.node.control_plane.kubectl(*args))
        except CommandError:
            return {}
        return found

    def spec(self) -> dict[str, Any]:
        """Empty while there is no lease."""
        return dict(self.lease().get("spec", {}))

    def refused(self) -> str:
        return str(self.lease().get("metadata", {}).get("annotations", {}).get(REFUSALS_ANNOTATION, ""))

    def owners(self) -> list[tuple[str, str, str]]:
        """Kind, name and uid of each."""
        found = self.lease().get("metadata", {}).get("ownerReferences", [])
        return [(owner["kind"], owner["name"], owner["uid"]) for owner in found]

    def node_owner(self) -> tuple[str, str, str]:
        uid = self.node.control_plane.kubectl("get", "node", self.node.name, "-o", "jsonpath={.metadata.uid}")
        return "Node", self.node.name, uid

    async def until_renewed(self) -> dict[str, Any]:
        before = await asyncio.to_thread(self.spec)
        await until(
            lambda: self.spec().get("renewTime", "") > before.get("renewTime", ""), lambda: f"renewed: {before}"
        )
        return await asyncio.to_thread(self.spec)

    async def kubectl(self, *args: str) -> None:
        await asyncio.to_thread(self.node.control_plane.kubectl, *args, "--namespace", AGENTS_NAMESPACE)


@pytest.fixture
async def cluster(agent_node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(lease, "_RETRY_SECONDS", 0.1)
    made = KubeClient.connect(await asyncio.to_thread(agent_node.kubeconfig))
    yield made
    await made.close()


@pytest.fixture
async def beating(agent_node: AgentNode, cluster: KubeClient) -> AsyncIterator[Beating]:
    found = Beating(agent_node)
    async with background(found.keeper(cluster).run()):
        yield found


async def test_a_deleted_lease_is_created_again(beating: Beating) -> None:
    await beating.until_renewed()
    await beating.kubectl("delete", "lease", beating.node.name)
    await until(lambda: beating.spec() != {}, lambda: "the lease is made again")


async def test_the_owner_of_an_earlier_node_is_replaced(beating: Beating) -> None:
    await beating.until_renewed()
    owner = await asyncio.to_thread(beating.node_owner)
    earlier = {"apiVersion": "v1", "kind": "Node", "name": owner[1], "uid": "of-an-earlier-node"}
    patch = json.dumps({"metadata": {"ownerReferences": [earlier]}})
    await beating.kubectl("patch", "lease", beating.node.name, "--type=merge", "-p", patch)
    await until(lambda: beating.owners() == [owner], lambda: f"owned again: {beating.owners()}")


async def test_an_agent_stops_when_one_of_a_copy_of_its_directory_has_its_lease(
    agent_node: AgentNode, cluster: KubeClient
) -> None:
    beating = Beating(agent_node)
    keeper = beating.keeper(cluster)
    await keeper.acquire()
    patch = json.dumps({"spec": {"holderIdentity": OF_A_COPY}})
    await beating.kubectl("patch", "lease", beating.node.name, "--type=merge", "-p", patch)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(LeaseHeld, match=f"is held by another agent .{OF_A_COPY}"):
            await keeper.run()
    assert (await asyncio.to_thread(beating.spec))["holderIdentity"] == OF_A_COPY


async def test_rejected_registrations_are_annotated_until_they_are_old(beating: Beating) -> None:
    await beating.until_renewed()
    await beating.kubectl("annotate", "lease", beating.node.name, "somebody=was here")
    await until(lambda: beating.renewals[-1:] == [True], lambda: f"renewed: {beating.renewals}")
    beating.rejections.add("ResourceName", ValueError("b is\nno name"))
    beating.rejections.add("Dialling", ValueError("a has no socket"))
    await until(lambda: beating.refused() == "a has no socket\nb is no name", lambda: f"refused: {beating.refused()}")
    annotations = (await asyncio.to_thread(beating.lease))["metadata"]["annotations"]
    assert annotations["somebody"] == "was here"
    beating.time += 3600
    await until(lambda: beating.refused() == "", lambda: f"over: {beating.refused()}")
