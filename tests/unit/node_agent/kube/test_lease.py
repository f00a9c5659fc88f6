"""Renewals of the Lease where the API server is a double; tests/integration/agent has the real one."""

import asyncio

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import ApiForbidden
from nodedevice_agent.kube import lease
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.metrics import AgentHealth
from nodedevice_api.names import REFUSALS_ANNOTATION

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time


class ForbidsAnnotation(KubeClient):
    """An API server with the policy of an older chart. renewals: how many it has accepted."""

    def __init__(self) -> None:
        self.renewals = 0

    async def node_uid(self, name: str) -> str:
        return "uid"

    async def get_lease(self, namespace: str, name: str) -> Lease:
        return Lease(metadata=ObjectMeta(name=name, namespace=namespace))

    async def replace_lease(self, renewed: Lease) -> Lease:
        if REFUSALS_ANNOTATION in ((renewed.metadata or ObjectMeta()).annotations or {}):
            raise ApiForbidden("renewing the lease", "no annotations", 403)
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
