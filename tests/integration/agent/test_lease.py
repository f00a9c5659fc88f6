"""Renewals of the Lease against a real API server, at a short interval."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube import lease
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_api.names import AGENT_LEASE_SECONDS, AGENTS_NAMESPACE, REFUSALS_ANNOTATION
from nodedevice_kube.api_errors import Forbidden

from hack.cluster.errors import CommandError
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
SUCCESSOR = "0123456789abcdef0123456789abcdef_22222222"
STRANGER = "ffffffffffffffffffffffffffffffff_33333333"


class Beating:
    """A lease being renewed; `renewals`: whether each of them reached the API server."""

    def __init__(self, node: AgentNode, identity: str = HOLDER) -> None:
        self.node = node
        self.identity = identity
        self.time = 1000.0
        self.rejections = Rejections(lambda: self.time)
        self.health = RecordedHealth()
        self.renewals = self.health.renewals

    def keeper(self, cluster: KubeClient) -> LeaseKeeper:
        node, clock = self.node.name, lambda: self.time
        return LeaseKeeper(cluster, AGENTS_NAMESPACE, node, self.identity, self.rejections, self.health, clock)

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

    async def until_checked(self) -> None:
        """It has read the lease as it is now: one attempt may have begun earlier."""
        attempts = len(self.renewals) + 2
        await until(lambda: len(self.renewals) >= attempts, lambda: f"attempts: {self.renewals}")

    async def kubectl(self, *args: str) -> None:
        await asyncio.to_thread(self.node.control_plane.kubectl, *args, "--namespace", AGENTS_NAMESPACE)


@asynccontextmanager
async def renewing(node: AgentNode) -> AsyncIterator[Beating]:
    cluster = KubeClient.connect(await asyncio.to_thread(node.kubeconfig))
    beating = Beating(node)
    async with background(beating.keeper(cluster).run()):
        yield beating
    await cluster.close()


@pytest.fixture
async def beating(agent_node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Beating]:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(lease, "_RETRY_SECONDS", 0.1)
    async with renewing(agent_node) as found:
        yield found


async def test_the_lease_is_created_and_renewed(beating: Beating) -> None:
    first = await beating.until_renewed()
    assert (first["holderIdentity"], first["leaseDurationSeconds"]) == (HOLDER, 60)
    second = await beating.until_renewed()
    assert second["acquireTime"] == first["acquireTime"]
    assert set(beating.renewals) == {True}


async def test_a_deleted_lease_is_created_again(beating: Beating) -> None:
    await beating.until_renewed()
    await beating.kubectl("delete", "lease", beating.node.name)
    await until(lambda: beating.spec() != {}, lambda: "the lease is made again")


async def test_the_node_owns_the_lease(beating: Beating) -> None:
    await beating.until_renewed()
    owner = await asyncio.to_thread(beating.node_owner)
    assert await asyncio.to_thread(beating.owners) == [owner]


async def test_the_owner_of_an_earlier_node_is_replaced(beating: Beating) -> None:
    await beating.until_renewed()
    owner = await asyncio.to_thread(beating.node_owner)
    earlier = {"apiVersion": "v1", "kind": "Node", "name": owner[1], "uid": "of-an-earlier-node"}
    patch = json.dumps({"metadata": {"ownerReferences": [earlier]}})
    await beating.kubectl("patch", "lease", beating.node.name, "--type=merge", "-p", patch)
    await until(lambda: beating.owners() == [owner], lambda: f"owned again: {beating.owners()}")


@pytest.fixture
async def cluster(agent_node: AgentNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(lease, "_RETRY_SECONDS", 0.1)
    made = KubeClient.connect(await asyncio.to_thread(agent_node.kubeconfig))
    yield made
    await made.close()


async def hold(beating: Beating, holder: str, **spec: Any) -> None:
    patch = json.dumps({"spec": {"holderIdentity": holder, **spec}})
    await beating.kubectl("patch", "lease", beating.node.name, "--type=merge", "-p", patch)


@pytest.mark.parametrize("other", [STRANGER, SUCCESSOR], ids=["of another directory", "of a copy of its directory"])
async def test_an_agent_stops_when_another_one_has_its_lease(
    agent_node: AgentNode, cluster: KubeClient, other: str
) -> None:
    beating = Beating(agent_node)
    keeper = beating.keeper(cluster)
    await keeper.acquire()
    await hold(beating, other)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(LeaseHeld, match=f"is held by another agent .{other}"):
            await keeper.run()
    assert (await asyncio.to_thread(beating.spec))["holderIdentity"] == other


async def test_the_next_process_of_the_same_directory_takes_over_at_once(
    agent_node: AgentNode, cluster: KubeClient
) -> None:
    await Beating(agent_node).keeper(cluster).acquire()
    successor = Beating(agent_node, SUCCESSOR)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await successor.keeper(cluster).acquire()
    assert (await asyncio.to_thread(successor.spec))["holderIdentity"] == SUCCESSOR
    assert successor.renewals == [True, True]


async def test_another_agent_waits_until_the_lease_has_expired(
    agent_node: AgentNode, cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an attempt that is given up has read nothing
    monkeypatch.setattr(lease, "_START_SECONDS", PATIENCE_SECONDS)
    holder, other = Beating(agent_node), Beating(agent_node, STRANGER)
    await holder.keeper(cluster).acquire()
    waiting = asyncio.create_task(other.keeper(cluster).acquire())
    try:
        # each renewal counts from when it was seen, whatever time it carries
        for second in range(4):
            await hold(holder, HOLDER, renewTime=f"2020-01-01T00:00:0{second}.000000Z")
            await other.until_checked()
            other.time += AGENT_LEASE_SECONDS - 1
            await other.until_checked()
            assert not waiting.done()
        other.time += 2
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    finally:
        waiting.cancel()
    assert set(other.renewals[:-2]) == {False}
    assert (await asyncio.to_thread(other.spec))["holderIdentity"] == STRANGER


async def test_a_start_does_not_wait_for_an_api_server_that_does_not_answer(
    agent_node: AgentNode,
) -> None:
    """Containers would wait for their devices meanwhile."""
    kubeconfig = agent_node.kubeconfig()
    content = kubeconfig.read_text().replace(agent_node.control_plane.url, "http://127.0.0.1:1")
    kubeconfig.write_text(content)
    cluster = KubeClient.connect(kubeconfig)
    beating = Beating(agent_node)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await beating.keeper(cluster).acquire()
    assert beating.renewals == []
    await cluster.close()


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


async def test_a_new_rejection_renews_the_lease_early(agent_node: AgentNode) -> None:
    async with renewing(agent_node) as beating:
        await until(lambda: beating.renewals == [True], lambda: "it is made, and the next beat is far")
        beating.rejections.add("Version", ValueError("v1alpha1 is too old"))
        await until(lambda: beating.refused() != "", lambda: f"annotated: {beating.renewals}")
        assert beating.renewals == [True, True]


async def test_a_forbidden_annotation_stops_no_renewal(beating: Beating, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent newer than its chart: the renewal matters more than the annotation."""
    replace = KubeClient.replace_lease

    async def refusing(cluster: KubeClient, renewed: Json) -> Json:
        if REFUSALS_ANNOTATION in renewed["metadata"]["annotations"]:
            raise Forbidden("renewing", "the lease", "no annotations", 403)
        return await replace(cluster, renewed)

    monkeypatch.setattr(KubeClient, "replace_lease", refusing)
    await beating.until_renewed()
    beating.rejections.add("Version", ValueError("too old"))
    await until(lambda: not beating.rejections.changed.is_set(), lambda: "a report was tried")
    await beating.until_renewed()
    assert set(beating.renewals) == {True}
    assert await asyncio.to_thread(beating.refused) == ""


async def test_an_outage_is_reported_until_it_ends(beating: Beating) -> None:
    await beating.until_renewed()
    await asyncio.to_thread(beating.node.control_plane.stop_apiserver)
    try:
        await until(lambda: beating.renewals[-1] is False, lambda: f"renewals: {beating.renewals}")
    finally:
        await asyncio.to_thread(beating.node.control_plane.start_apiserver)
    await until(lambda: beating.renewals[-1] is True, lambda: f"over: {beating.renewals}")
    await beating.until_renewed()
