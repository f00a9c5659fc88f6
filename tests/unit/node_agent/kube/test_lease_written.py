"""The Lease as it is created, renewed and taken over; and what is said while it cannot be."""

import asyncio
import logging
import re
from copy import deepcopy
from typing import Any, cast

import pytest
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.kube import lease
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.metrics import AgentHealth
from nodedevice_api.names import AGENT_LEASE_SECONDS, CONFIGS_ANNOTATION, REFUSALS_ANNOTATION
from nodedevice_kube.api_errors import ApiError, Conflict, NotFound, Unauthorized, Unavailable
from nodedevice_kube.leases import Lease, lease_of

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time

BEFORE = "2026-01-01T00:00:00.000000Z"
NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "n1", "uid": "uid-2"}


class Cluster:
    """One Lease, or none. failures: raised by the next requests, in turn. reads: of the Lease."""

    server = "https://10.0.0.1"

    def __init__(self, found: Json | None = None) -> None:
        self.found = found
        self.failures: list[Exception] = []
        self.reads = self.writes = 0
        self.asked: set[tuple[str, str]] = set()

    async def node_uid(self, name: str) -> str:
        assert name == "n1"
        return "uid-1"

    async def get_lease(self, namespace: str, name: str) -> Json:
        self.reads += 1
        self.asked.add((namespace, name))
        self._fail()
        if self.found is None:
            raise NotFound("reading", "the lease", "none", 404)
        return deepcopy(self.found)

    async def create_lease(self, made: Json) -> Json:
        assert self.found is None
        return self._write(made)

    async def replace_lease(self, made: Json) -> Json:
        self._fail()
        return self._write(made)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _write(self, made: Json) -> Json:
        self.writes += 1
        self.found = deepcopy(made)
        self.found["metadata"]["resourceVersion"] = str(100 + self.writes)
        return deepcopy(self.found)

    @property
    def lease(self) -> Lease:
        return lease_of(self.found or {})

    @property
    def metadata(self) -> Json:
        assert self.found is not None
        found: Json = self.found["metadata"]
        return found


def keeper_of(cluster: Cluster, health: AgentHealth | None = None) -> LeaseKeeper:
    clock = asyncio.get_running_loop().time
    return LeaseKeeper(
        cast(KubeClient, cluster), "agents", "n1", "a_1", Rejections(clock), health or AgentHealth(), clock
    )


def held_by(holder: str, **metadata: Any) -> Json:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 5, "acquireTime": BEFORE, "renewTime": BEFORE}
    return {"metadata": {"name": "n1", "namespace": "agents", "resourceVersion": "50", **metadata}, "spec": spec}


async def test_where_there_is_none_it_is_created_as_the_nodes() -> None:
    cluster = Cluster()
    keeper = keeper_of(cluster)
    keeper.report_configs("configs", is_refused=False)
    await keeper.acquire()
    assert cluster.asked == {("agents", "n1")}
    assert cluster.metadata == {
        "name": "n1",
        "namespace": "agents",
        "ownerReferences": [NODE],
        "annotations": {CONFIGS_ANNOTATION: "configs"},
        "labels": {},
        "resourceVersion": "101",
    }
    found = cluster.lease
    assert (found.holder, found.duration_seconds, found.acquired) == ("a_1", AGENT_LEASE_SECONDS, found.renewed)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", found.renewed)


async def test_one_that_is_there_keeps_what_is_not_ours() -> None:
    old = {**NODE, "uid": "uid-0"}
    annotations = {"team": "x", REFUSALS_ANNOTATION: "old", CONFIGS_ANNOTATION: "old"}
    cluster = Cluster(held_by("a_0", ownerReferences=[old, OTHER], annotations=annotations))
    keeper = keeper_of(cluster)
    await keeper.acquire()
    assert cluster.metadata["ownerReferences"] == [OTHER, NODE]
    assert cluster.metadata["annotations"] == {"team": "x"}
    # a new holder
    assert cluster.lease.acquired == cluster.lease.renewed != BEFORE
    since = cluster.lease.acquired
    keeper._lease = await keeper._renewed("rejected")
    assert cluster.metadata["annotations"] == {"team": "x", REFUSALS_ANNOTATION: "rejected"}
    assert cluster.lease.acquired == since
    # it is not read again, as its version says whether it is another
    assert (cluster.reads, cluster.writes) == (1, 2)


@virtual_time
async def test_another_agents_is_waited_for_until_it_has_expired(caplog: pytest.LogCaptureFixture) -> None:
    cluster, health = Cluster(held_by("b_1")), AgentHealth("lease")
    clock = asyncio.get_running_loop().time
    began, beats = clock(), []
    health.beat = lambda: beats.append(clock())
    keeper = keeper_of(cluster, health)
    acquiring = asyncio.create_task(keeper.acquire())
    await asyncio.sleep(1)
    assert "lease agents/n1 is held by another agent (b_1)" in health.ready()[1]
    await acquiring
    # its own duration, by our clock
    assert 5 < clock() - began < 5 + 2 * lease._RETRY_SECONDS
    assert cluster.lease.holder == "a_1"
    assert health.ready()[0]
    assert len(beats) == cluster.reads - 1 > 0
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    (record,) = records
    assert record.message == "another agent holds the lease; waiting until it expires"
    assert vars(record)["lease"] == "n1"


@virtual_time
async def test_one_that_is_renewed_meanwhile_does_not_expire() -> None:
    cluster = Cluster(held_by("b_1"))
    acquiring = asyncio.create_task(keeper_of(cluster).acquire())
    for seconds in range(1, 20):
        await asyncio.sleep(1)
        cluster.found = held_by("b_1") | {
            "spec": {"holderIdentity": "b_1", "leaseDurationSeconds": 5, "renewTime": str(seconds)}
        }
    assert not acquiring.done()
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)


@pytest.mark.parametrize("failure", [Unavailable("reading", "the lease", "no route"), TimeoutError()])
async def test_without_an_answer_the_agent_starts_and_tries_on(failure: Exception) -> None:
    cluster = Cluster()
    cluster.failures = [failure]
    keeper = keeper_of(cluster)
    await keeper.acquire()
    assert (keeper._lease, cluster.writes) == (None, 0)


@virtual_time
@pytest.mark.parametrize(
    ("failure", "problem", "reads"),
    [
        pytest.param(Unavailable("renewing", "the lease", "no route"), "the lease cannot be renewed", 1, id="lost"),
        pytest.param(
            Conflict("renewing", "the lease", "modified", 409), "the lease cannot be renewed", 2, id="conflict"
        ),
        pytest.param(NotFound("renewing", "the lease", "gone", 404), "the lease cannot be renewed", 2, id="deleted"),
        pytest.param(Unauthorized("renewing", "the lease", "who", 401), "rejects the credentials", 1, id="token"),
    ],
)
async def test_a_renewal_that_fails_is_shown_and_made_soon_again(
    failure: ApiError, problem: str, reads: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster, health = Cluster(held_by("a_0")), AgentHealth("api server")
    keeper = keeper_of(cluster, health)
    await keeper.acquire()
    assert health.ready()[0]
    cluster.failures = [failure]
    async with background(keeper.run()):
        await asyncio.sleep(lease.RENEW_SECONDS + 0.5)
        assert problem in health.ready()[1]
        assert cluster.writes == 1
        await asyncio.sleep(lease._RETRY_SECONDS)
        assert (cluster.writes, cluster.reads) == (2, reads)
        assert health.ready()[0]
    said = [record.message for record in caplog.records]
    assert ("lease renewed after failures" in said) is ("lease renewal failed; retrying" in said)


@virtual_time
async def test_another_holder_ends_the_agent_later_on() -> None:
    cluster = Cluster(held_by("a_0"))
    keeper = keeper_of(cluster)
    await keeper.acquire()
    cluster.found = held_by("b_1")
    cluster.metadata["resourceVersion"] = "500"
    cluster.failures = [Conflict("renewing", "the lease", "modified", 409)]
    with pytest.raises(LeaseHeld, match="b_1"):
        await keeper.run()
