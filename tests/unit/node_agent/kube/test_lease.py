"""Renewals of the Lease where the API server is a double; tests/integration/agent has the real one."""

import asyncio

from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.kube import lease
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.metrics import AgentHealth
from nodedevice_api.names import CONFIG_REFUSED_LABEL, REFUSALS_ANNOTATION
from nodedevice_kube.api_errors import Forbidden

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time


class ForbidsAnnotation(KubeClient):
    """An API server with the policy of an older chart. renewals: how many it has accepted."""

    def __init__(self) -> None:
        self.renewals = 0

    async def node_uid(self, name: str) -> str:
        return "uid"

    async def get_lease(self, namespace: str, name: str) -> Json:
        return {"metadata": {"name": name, "namespace": namespace}}

    async def replace_lease(self, renewed: Json) -> Json:
        if REFUSALS_ANNOTATION in renewed["metadata"]["annotations"]:
            raise Forbidden("renewing", "the lease", "no annotations", 403)
        self.renewals += 1
        return renewed


@virtual_time
async def test_rejections_that_cannot_be_reported_renew_the_lease_once_each() -> None:
    clock = asyncio.get_running_loop().time
    cluster, rejections = ForbidsAnnotation(), Rejections(clock)
    keeper = LeaseKeeper(cluster, "agents", "node-a", "host-a", rejections, AgentHealth("api server"), clock)
    async with background(keeper.run()):
        for reason in ("first", "second", "third"):
            rejections.add("Version", ValueError(reason))
            # the next renewal that is due is later
            await asyncio.sleep(lease.RENEW_SECONDS / 4)
    assert cluster.renewals == 3


class ForbidsLabel(ForbidsAnnotation):
    async def replace_lease(self, renewed: Json) -> Json:
        if renewed["metadata"]["labels"]:
            raise Forbidden("renewing", "the lease", "no labels", 403)
        return await super().replace_lease(renewed)


@virtual_time
async def test_a_label_that_an_older_policy_forbids_stops_no_renewal() -> None:
    clock = asyncio.get_running_loop().time
    cluster = ForbidsLabel()
    keeper = LeaseKeeper(cluster, "agents", "node-a", "h", Rejections(clock), AgentHealth("api server"), clock)
    async with background(keeper.run()):
        keeper.report_configs('{"a":{"generation":1,"refusal":"no"}}', is_refused=True)
        # at once, and when it is due again
        await asyncio.sleep(lease.RENEW_SECONDS * 1.5)
    assert cluster.renewals == 2


class Written(KubeClient):
    """An API server that takes everything. leases: as they were written, with the time of the loop."""

    def __init__(self) -> None:
        self.leases: list[tuple[float, Json]] = []
        self._new = asyncio.Event()

    async def node_uid(self, name: str) -> str:
        return "uid"

    async def get_lease(self, namespace: str, name: str) -> Json:
        return {"metadata": {"name": name, "namespace": namespace, "labels": {"team": "a"}}}

    async def replace_lease(self, renewed: Json) -> Json:
        self.leases.append((asyncio.get_running_loop().time(), renewed["metadata"]))
        self._new.set()
        return renewed

    async def until(self, count: int) -> tuple[float, Json]:
        while len(self.leases) < count:
            self._new.clear()
            await self._new.wait()
        return self.leases[-1]


@virtual_time
async def test_a_refused_configuration_is_labelled_at_once_and_the_label_goes_with_it() -> None:
    clock = asyncio.get_running_loop().time
    cluster = Written()
    keeper = LeaseKeeper(cluster, "agents", "node-a", "h", Rejections(clock), AgentHealth("api server"), clock)
    async with background(keeper.run()):
        await cluster.until(1)
        began = clock()
        keeper.report_configs('{"a":{"generation":1,"refusal":"no"}}', is_refused=True)
        at, written = await cluster.until(2)
        assert at - began < 0.5
        assert written["labels"] == {"team": "a", CONFIG_REFUSED_LABEL: "true"}
        keeper.report_configs('{"a":{"generation":2}}', is_refused=False)
        at, written = await cluster.until(3)
        assert at - began < 0.5
        assert written["labels"] == {"team": "a"}


@virtual_time
async def test_news_without_end_renew_it_at_a_bounded_rate() -> None:
    clock = asyncio.get_running_loop().time
    cluster = Written()
    keeper = LeaseKeeper(cluster, "agents", "node-a", "h", Rejections(clock), AgentHealth("api server"), clock)
    async with background(keeper.run()):
        began = clock()
        while clock() - began < 60:
            keeper.report_configs(str(clock()), is_refused=False)
            await asyncio.sleep(0.01)
    assert len(cluster.leases) <= 60 / lease._NEWS_SECONDS + lease._NEWS_AT_ONCE + 2
