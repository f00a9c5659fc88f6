"""The agent's heartbeat: a Lease named as the node, in the agents' namespace, renewed every 20 seconds give or take a tenth.

Written with PUT and the kept resource version: one request a renewal. Owned by the Node, so that it goes with it: where nodes come
and go by the hundred, Leases of those long gone would be listed for ever. An API server that is away is not an error here; the
operator sees the Lease grow old. Registrations that were refused are told on it as well, soon after.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from nodedevice_api import names
from nodedevice_common.jitter import jittered

from nodedevice_agent.deviceplugin.rejections import Refusals
from nodedevice_agent.errors import ApiError, ApiForbidden, ApiNotFound
from nodedevice_agent.kube.client import Cluster
from nodedevice_agent.kube.retry import complain

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0
_JITTER = 0.1
_RETRY_SECONDS = 5.0
# Between a renewal and one for news: whoever is refused again and again in other words is told of no faster.
_NEWS_SECONDS = 2.0
_CONFLICT = 409


async def keep_lease(
    cluster: Cluster,
    namespace: str,
    node_name: str,
    identity: str,
    refusals: Refusals,
    said: Callable[[bool], None],
) -> None:
    """Renew until cancelled. said: called with whether the last renewal reached the API server."""
    lease: Lease | None = None
    is_failing, is_said, may_tell = False, False, True
    while True:
        pause = jittered(RENEW_SECONDS, _JITTER)
        told = refusals.told() if may_tell else ""
        try:
            lease = await _renew(cluster, namespace, node_name, identity, told, lease)
            if is_said:
                log.info("lease renewed again", extra={"lease": node_name})
            is_failing = is_said = False
        except ApiError as exc:
            if told and isinstance(exc, ApiForbidden):
                # by a policy older than this agent: that it lives is more than what it has to tell
                log.warning("refused registrations cannot be told on the lease", extra={"error": str(exc)})
                lease, may_tell = None, False
                continue
            is_said = is_said or complain("lease cannot be renewed; trying again", exc, lease=node_name)
            is_failing, pause = True, _RETRY_SECONDS
            if exc.status == _CONFLICT or isinstance(exc, ApiNotFound):
                lease = None
        said(not is_failing)
        await _pause(pause, refusals.is_news)


async def _pause(seconds: float, is_news: asyncio.Event) -> None:
    await asyncio.sleep(min(_NEWS_SECONDS, seconds))
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds - _NEWS_SECONDS)):
            await is_news.wait()


async def _renew(
    cluster: Cluster, namespace: str, node_name: str, identity: str, refusals: str, lease: Lease | None
) -> Lease:
    now = datetime.now(UTC)
    if lease is None:
        owner = OwnerReference("v1", "Node", node_name, await cluster.node_uid(node_name))
        try:
            lease = await cluster.get_lease(namespace, node_name)
        except ApiNotFound:
            lease = Lease(metadata=ObjectMeta(name=node_name, namespace=namespace, ownerReferences=[owner]))
            _tell(lease, refusals)
            lease.spec = _spec(now, identity)
            return await cluster.create_lease(lease)
        _own(lease, owner)
    _tell(lease, refusals)
    acquired = lease.spec.acquireTime if lease.spec and lease.spec.holderIdentity == identity else now
    lease.spec = _spec(now, identity)
    lease.spec.acquireTime = acquired
    return await cluster.replace_lease(lease)


def _own(lease: Lease, node: OwnerReference) -> None:
    """Make that Node an owner, in place of an earlier one of its name; who else owns it stays."""
    assert lease.metadata is not None
    others = [
        owner for owner in lease.metadata.ownerReferences or [] if (owner.kind, owner.name) != ("Node", node.name)
    ]
    lease.metadata.ownerReferences = [*others, node]


def _tell(lease: Lease, refusals: str) -> None:
    assert lease.metadata is not None
    others = {k: v for k, v in (lease.metadata.annotations or {}).items() if k != names.REFUSALS_ANNOTATION}
    lease.metadata.annotations = {**others, names.REFUSALS_ANNOTATION: refusals} if refusals else others


def _spec(now: datetime, identity: str) -> LeaseSpec:
    return LeaseSpec(
        holderIdentity=identity, leaseDurationSeconds=names.AGENT_LEASE_SECONDS, acquireTime=now, renewTime=now
    )
