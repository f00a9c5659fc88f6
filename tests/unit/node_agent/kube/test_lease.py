"""The Lease as it is created, renewed and taken over, and what is said while it cannot be."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.lease import RENEW_SECONDS, LeaseKeeper, identity
from nodedevice_api.names import AGENT_LEASE_SECONDS, CONFIG_REFUSED_LABEL, CONFIGS_ANNOTATION, REFUSALS_ANNOTATION
from nodedevice_common.api_exchange import Broken, Request
from nodedevice_kube.leases import Lease, lease_of

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, path_of
from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time

OURS, PREDECESSOR, STRANGER = "a_1", "a_2", "b_3"
BEFORE: Final = "2026-01-01T00:00:00.000000Z"
NODE: Final = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"}
OTHER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "n1", "uid": "uid-2"}
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/agents/leases"
NO_ROUTE: Final = Broken("no route")


def a_lease(holder: str, version: int = 50, renewed: str = BEFORE, **metadata: Any) -> Json:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 5, "acquireTime": BEFORE, "renewTime": renewed}
    named = {"name": "n1", "namespace": "agents", "resourceVersion": str(version), **metadata}
    return {"metadata": named, "spec": spec}


class Server(api_answers.Server):
    """One Lease, or none. fails: for each request. forbids: a write. reads: their number. writes: the metadata of each."""

    def __init__(self) -> None:
        self.found: Json | None = None
        self.fails: Broken | int | None = None
        self.forbids: Callable[[Json], bool] = lambda metadata: False
        self.reads = 0
        self.writes: list[Json] = []

    def answer(self, request: Request) -> Answer:
        if isinstance(self.fails, Broken):
            raise self.fails
        if self.fails is not None:
            return json_answer({"message": "no"}, self.fails)
        if path_of(request) == "/api/v1/nodes/n1":
            return json_answer({"metadata": {"name": "n1", "uid": "uid-1"}})
        if request.method == "GET":
            self.reads += 1
            assert request.target == f"{LEASES}/n1"
            return json_answer(self.found or {"message": "none"}, 200 if self.found else 404)
        return self._written(request)

    def _written(self, request: Request) -> Answer:
        assert path_of(request) == (LEASES if request.method == "POST" else f"{LEASES}/n1")
        sent: Json = json.loads(request.body or b"")
        if request.method == "PUT" and self.found is None:
            return json_answer({"message": "none"}, 404)
        if lease_of(sent).version != self.lease.version:
            return json_answer({"message": "the object has been modified"}, 409)
        if self.forbids(sent["metadata"]):
            return json_answer({"message": "a policy of an older chart"}, 403)
        self.found = sent
        sent["metadata"]["resourceVersion"] = str(int(self.lease.version or "100") + 1)
        self.writes.append(json.loads(json.dumps(sent["metadata"])))
        return json_answer(sent)

    @property
    def lease(self) -> Lease:
        return lease_of(self.found or {})

    @property
    def metadata(self) -> Json:
        assert self.found is not None
        found: Json = self.found["metadata"]
        return found


def keeper_of(
    cluster: KubeClient, health: AgentHealth | None = None, rejections: Rejections | None = None
) -> LeaseKeeper:
    clock = asyncio.get_running_loop().time
    return LeaseKeeper(cluster, "agents", "n1", OURS, rejections or Rejections(clock), health or AgentHealth(), clock)


async def test_where_there_is_none_it_is_created_as_the_nodes(cluster: KubeClient, server: Server) -> None:
    keeper = keeper_of(cluster)
    keeper.report_configs("configs", is_refused=False)
    await keeper.acquire()
    named = {"name": "n1", "namespace": "agents", "labels": {}, "resourceVersion": "101"}
    assert server.metadata == named | {"ownerReferences": [NODE], "annotations": {CONFIGS_ANNOTATION: "configs"}}
    found = server.lease
    assert (found.holder, found.duration_seconds, found.acquired) == (OURS, AGENT_LEASE_SECONDS, found.renewed)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found.renewed)


@virtual_time
async def test_one_that_is_there_keeps_what_is_not_ours(cluster: KubeClient, server: Server) -> None:
    annotations = {"team": "x", REFUSALS_ANNOTATION: "old", CONFIGS_ANNOTATION: "old"}
    server.found = a_lease(PREDECESSOR, ownerReferences=[{**NODE, "uid": "uid-0"}, OTHER], annotations=annotations)
    rejections = Rejections(asyncio.get_running_loop().time)
    keeper = keeper_of(cluster, rejections=rejections)
    await keeper.acquire()
    assert server.metadata["ownerReferences"] == [OTHER, NODE]
    assert server.metadata["annotations"] == {"team": "x"}
    # a new holder
    since = server.lease.acquired
    assert server.lease.renewed == since != BEFORE
    async with background(keeper.run()):
        rejections.add("Version", ValueError("why"))
        await asyncio.sleep(3)
    assert server.metadata["annotations"] == {"team": "x", REFUSALS_ANNOTATION: rejections.report()}
    assert (server.lease.acquired, server.lease.renewed > since) == (since, True)
    # it is not read again, as its version says whether it is another
    assert (server.reads, len(server.writes)) == (1, 2)


@virtual_time
@pytest.mark.parametrize(
    ("holder", "version", "is_taken"),
    [
        pytest.param(OURS, 200, True, id="ours, with another client's annotation"),
        pytest.param(PREDECESSOR, 200, False, id="a later process of a copied directory"),
        pytest.param(STRANGER, 200, False, id="another agent's"),
        pytest.param(PREDECESSOR, 20, True, id="a predecessor's, of a restored server"),
        pytest.param(STRANGER, 20, True, id="another agent's that had it before us, of a restored server"),
    ],
)
async def test_a_lease_that_another_takes_ends_the_agent_unless_the_server_was_restored(
    cluster: KubeClient, server: Server, holder: str, version: int, is_taken: bool
) -> None:
    server.found = a_lease(PREDECESSOR, 100)
    keeper = keeper_of(cluster)
    await keeper.acquire()
    assert server.lease.holder == OURS
    server.found = a_lease(holder, version)
    if is_taken:
        async with background(keeper.run()):
            await asyncio.sleep(RENEW_SECONDS * 2)
    else:
        async with asyncio.timeout(RENEW_SECONDS * 2):
            with pytest.raises(LeaseHeld, match=f"lease agents/n1 is held by another agent .{holder}"):
                await keeper.run()
    assert server.lease.holder == (OURS if is_taken else holder)


def test_each_process_is_a_holder_of_its_own() -> None:
    first, second = identity("a" * 32), identity("a" * 32)
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] == "a" * 32


@virtual_time
async def test_another_agents_is_waited_for_until_it_has_expired(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.found = a_lease(STRANGER)
    health = AgentHealth("lease")
    clock = asyncio.get_running_loop().time
    acquiring = asyncio.create_task(keeper_of(cluster, health).acquire())
    for seconds in range(1, 20):
        await asyncio.sleep(1)
        assert f"lease agents/n1 is held by another agent ({STRANGER})" in health.ready()[1]
        server.found = a_lease(STRANGER, renewed=f"2026-01-01T00:00:{seconds:02}.000000Z")
    assert not acquiring.done(), "it was renewed"
    began = clock()
    await acquiring
    # its own duration of 5 seconds by our clock, and the pauses between two attempts
    assert 5 < clock() - began <= 15
    assert server.lease.holder == OURS
    assert health.ready()[0]
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.message == "another agent holds the lease; waiting until it expires"
    assert vars(record)["lease"] == "n1"


@virtual_time
async def test_without_an_answer_the_agent_starts_and_tries_on(cluster: KubeClient, server: Server) -> None:
    server.fails = NO_ROUTE
    keeper = keeper_of(cluster)
    await keeper.acquire()
    async with background(keeper.run()):
        await asyncio.sleep(1)
        server.fails = None
        await asyncio.sleep(5)
    assert server.lease.holder == OURS


@virtual_time
@pytest.mark.parametrize(
    ("state", "problem"),
    [
        pytest.param({"fails": NO_ROUTE}, "the lease cannot be renewed", id="lost"),
        pytest.param({"found": a_lease(OURS, 70)}, "the lease cannot be renewed", id="changed"),
        pytest.param({"found": None}, "the lease cannot be renewed", id="deleted"),
        pytest.param({"fails": 401}, "rejects the credentials", id="refused"),
    ],
)
async def test_a_renewal_that_fails_is_shown_and_made_soon_again(
    cluster: KubeClient, server: Server, state: dict[str, Any], problem: str
) -> None:
    server.found = a_lease(PREDECESSOR)
    health = AgentHealth("api server")
    keeper = keeper_of(cluster, health)
    await keeper.acquire()
    assert health.ready()[0]
    vars(server).update(state)
    async with background(keeper.run()):
        # the longest pause before a renewal
        await asyncio.sleep(RENEW_SECONDS + 0.5)
        assert problem in health.ready()[1]
        assert len(server.writes) == 1
        server.fails = None
        await asyncio.sleep(5)
        assert len(server.writes) == 2
        assert health.ready()[0]


@virtual_time
async def test_reports_that_a_policy_forbids_stop_no_renewal(cluster: KubeClient, server: Server) -> None:
    """By the policy of an older chart."""
    server.forbids = lambda metadata: bool(metadata["labels"]) or REFUSALS_ANNOTATION in metadata["annotations"]
    rejections = Rejections(asyncio.get_running_loop().time)
    keeper = keeper_of(cluster, rejections=rejections)
    async with background(keeper.run()):
        keeper.report_configs('{"a":{"generation":1,"refusal":"no"}}', is_refused=True)
        for reason in ("first", "second", "third"):
            rejections.add("Version", ValueError(reason))
            # the next renewal that is due is later
            await asyncio.sleep(RENEW_SECONDS / 4)
    assert len(server.writes) == 3, "one renewal for each"


@virtual_time
async def test_a_refused_configuration_is_labelled_at_once_and_the_label_goes_with_it(
    cluster: KubeClient, server: Server
) -> None:
    server.found = a_lease("", labels={"team": "a"})
    keeper = keeper_of(cluster)
    async with background(keeper.run()):
        await asyncio.sleep(1)
        keeper.report_configs('{"a":{"generation":1,"refusal":"no"}}', is_refused=True)
        await asyncio.sleep(0.5)
        keeper.report_configs('{"a":{"generation":2}}', is_refused=False)
        await asyncio.sleep(0.5)
    labels = [metadata["labels"] for metadata in server.writes]
    assert labels == [{"team": "a"}, {"team": "a", CONFIG_REFUSED_LABEL: "true"}, {"team": "a"}]


@virtual_time
async def test_news_without_end_renew_it_at_a_bounded_rate(cluster: KubeClient, server: Server) -> None:
    keeper = keeper_of(cluster)
    async with background(keeper.run()):
        for number in range(6000):
            keeper.report_configs(str(number), is_refused=False)
            await asyncio.sleep(0.01)
    # one in two seconds, after a few at once
    assert len(server.writes) <= 60 / 2 + 4
