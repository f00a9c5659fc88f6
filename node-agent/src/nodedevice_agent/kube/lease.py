"""The agent's heartbeat: a Lease named as the node, in the agents' namespace, renewed every 20 seconds give or take a tenth.

Written with PUT and the last resource version: one request a renewal. The Node owns it, so that both are deleted together:
otherwise Leases of deleted nodes would pile up where nodes come and go by the hundred. An unreachable API server is not an error
here: the operator sees the Lease expire. Annotations carry the registrations that were rejected
lately, and what became of the node's configurations; a label is on it while one of these is refused, so that the operator can
watch just such Leases.

The holder is one process of one state directory. A process of the same directory takes the Lease over at once, as its predecessor
has ended: the directory is locked. Another one waits until the Lease has expired, by its own clock; the holder stops when it finds
that it is not the holder any more.
"""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta, OwnerReference
from lightkube.resources.coordination_v1 import Lease
from nodedevice_api import names
from nodedevice_common import rejected
from nodedevice_common.pacing import TokenBucket, jittered
from nodedevice_common.text import clean

from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import ApiForbidden, ApiNotFound, ApiRequestError, ApiUnauthorized, LeaseHeld
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.retries import log_failure
from nodedevice_agent.kube.watch_state import number
from nodedevice_agent.metrics import AgentHealth

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0
_JITTER = 0.1
_RETRY_SECONDS = 5.0
# News renew the Lease at once: rejections, and what became of configurations. They may come in quick succession: so many pass at
# once, and then one each so many seconds.
_NEWS_AT_ONCE = 2
_NEWS_SECONDS = 2.0
_CONFLICT = 409
# A start waits no longer for an API server that does not answer: containers wait for their devices meanwhile.
_START_SECONDS = 2.0


def identity(agent_id: str) -> str:
    """The holder of a Lease: the state directory's ID, and a new part for each process."""
    return f"{agent_id}_{uuid.uuid4().hex[:8]}"


class LeaseKeeper:
    """Renews one agent's Lease. run() until cancelled."""

    def __init__(
        self,
        cluster: KubeClient,
        namespace: str,
        node_name: str,
        identity: str,
        rejections: Rejections,
        health: AgentHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._node_name = node_name
        self._identity = identity
        self._rejections = rejections
        # what became of the NodeDeviceConfigs that select the node
        self._configs = ""
        self._is_config_refused = False
        self._health = health
        self._clock = clock
        # as written last; None: to be read or created first
        self._lease: Lease | None = None
        # the resource version of the last write; 0: this process has never held it
        self._written = 0
        # another holder's renewal, and since when it has been the last one, by the clock
        self._foreign: tuple[str, datetime | None] | None = None
        self._foreign_since = 0.0
        self._may_report = True
        self._is_logged = False

    def report_configs(self, text: str, is_refused: bool) -> None:
        """Say this of the node's configurations from now on, soon. is_refused: whether it refuses one."""
        if (text, is_refused) != (self._configs, self._is_config_refused):
            self._configs, self._is_config_refused = text, is_refused
            self._rejections.changed.set()

    async def acquire(self) -> None:
        """Wait while another agent holds the Lease.

        Returns without it where the API server does not answer at the start: run() tries on, and stops if it finds another holder.
        """
        held: LeaseHeld | None = None
        while True:
            try:
                async with asyncio.timeout(_START_SECONDS):
                    self._lease = await self._renewed("")
                self._health.report("lease")
                return self._succeeded()
            except LeaseHeld as exc:
                if held is None:
                    extra = {"lease": self._node_name, "error": str(exc)}
                    log.error("another agent holds the lease; waiting until it expires", extra=extra)
                held = exc
            except (ApiRequestError, TimeoutError) as exc:
                if held is None:
                    log.debug("lease not acquired yet", extra={"error": str(exc)})
                    return None
            self._health.report("lease", str(held))
            self._health.beat()
            await asyncio.sleep(_RETRY_SECONDS)

    async def run(self) -> None:
        """Raises LeaseHeld."""
        news = TokenBucket(1 / _NEWS_SECONDS, _NEWS_AT_ONCE, asyncio.get_running_loop().time())
        if self._lease is not None:
            await _pause(RENEW_SECONDS, self._rejections.changed, news)
        while True:
            # also where they cannot be reported: a rejection ends the pause until it has been taken
            rejections = self._rejections.report()
            reported = rejections if self._may_report else ""
            pause = _RETRY_SECONDS
            try:
                self._lease = await self._renewed(reported)
                self._succeeded()
                pause = jittered(RENEW_SECONDS, _JITTER, random.random())
            except ApiRequestError as exc:
                if (reported or (self._configs and self._may_report)) and _is_denied(exc):
                    # by an admission policy older than this agent: the renewal matters more than the annotation
                    extra = {"error": str(exc)}
                    log.warning("admission policy forbids reports on the lease; omitting them", extra=extra)
                    self._lease, self._may_report = None, False
                    continue
                self._failed(exc)
            await _pause(pause, self._rejections.changed, news)

    def _succeeded(self) -> None:
        if self._is_logged:
            log.info("lease renewed after failures", extra={"lease": self._node_name})
        self._is_logged = False
        self._health.report("api server")

    def _failed(self, exc: ApiRequestError) -> None:
        self._is_logged = self._is_logged or log_failure("lease renewal failed; retrying", exc, lease=self._node_name)
        if exc.status == _CONFLICT or isinstance(exc, ApiNotFound):
            self._lease = None
        is_rejected = isinstance(exc, ApiUnauthorized)
        why = rejected.problem(self._cluster.server) if is_rejected else "the lease cannot be renewed"
        self._health.report("api server", why)

    async def _renewed(self, rejections: str) -> Lease:
        """The Lease as written. Raises LeaseHeld, ApiRequestError."""
        lease = await self._write(rejections)
        assert lease.metadata is not None
        self._written = number(lease.metadata.resourceVersion or "")
        return lease

    async def _write(self, rejections: str) -> Lease:
        now, lease, identity = datetime.now(UTC), self._lease, self._identity
        if lease is None:
            owner = OwnerReference("v1", "Node", self._node_name, await self._cluster.node_uid(self._node_name))
            try:
                lease = await self._cluster.get_lease(self._namespace, self._node_name)
            except ApiNotFound:
                metadata = ObjectMeta(name=self._node_name, namespace=self._namespace, ownerReferences=[owner])
                lease = Lease(metadata=metadata, spec=_spec(identity, now, now))
                self._annotate(lease, rejections)
                return await self._cluster.create_lease(lease)
            self._check_holder(lease)
            _own(lease, owner)
        self._annotate(lease, rejections)
        acquired = lease.spec.acquireTime if lease.spec and lease.spec.holderIdentity == identity else now
        lease.spec = _spec(identity, acquired, now)
        return await self._cluster.replace_lease(lease)

    def _annotate(self, lease: Lease, rejections: str) -> None:
        assert lease.metadata is not None
        reports = {
            names.REFUSALS_ANNOTATION: rejections,
            names.CONFIGS_ANNOTATION: self._configs if self._may_report else "",
        }
        others = {key: value for key, value in (lease.metadata.annotations or {}).items() if key not in reports}
        lease.metadata.annotations = others | {key: clean(text) for key, text in reports.items() if text}
        labels = {k: v for k, v in (lease.metadata.labels or {}).items() if k != names.CONFIG_REFUSED_LABEL}
        is_refused = self._is_config_refused and self._may_report
        lease.metadata.labels = (labels | ({names.CONFIG_REFUSED_LABEL: "true"} if is_refused else {})) or None

    def _check_holder(self, lease: Lease) -> None:
        """Raises LeaseHeld unless the Lease may be taken: it is ours, was our predecessor's, or has expired."""
        assert lease.metadata is not None
        found, spec = number(lease.metadata.resourceVersion or ""), lease.spec or LeaseSpec()
        holder = spec.holderIdentity or ""
        if holder in ("", self._identity) or found < self._written:
            # older than our own last write: the API server was restored from a backup
            return
        if self._written == 0 and (_agent_id(holder) == _agent_id(self._identity) or self._has_expired(spec)):
            return
        raise LeaseHeld(f"{self._namespace}/{self._node_name}", holder)

    def _has_expired(self, spec: LeaseSpec) -> bool:
        """Whether it was not renewed for its duration, as observed: no two clocks are compared."""
        now, seen = self._clock(), (spec.holderIdentity or "", spec.renewTime)
        if seen != self._foreign:
            self._foreign, self._foreign_since = seen, now
        return now - self._foreign_since > (spec.leaseDurationSeconds or names.AGENT_LEASE_SECONDS)


def _is_denied(error: ApiRequestError) -> bool:
    return isinstance(error, ApiForbidden) and not isinstance(error, ApiUnauthorized)


def _agent_id(holder: str) -> str:
    return holder.partition("_")[0]


async def _pause(seconds: float, is_news: asyncio.Event, news: TokenBucket) -> None:
    """So many seconds, cut short by news as often as that bucket lets them."""
    clock = asyncio.get_running_loop().time
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await is_news.wait()
            await asyncio.sleep(news.wait_seconds(clock()))
            news.reserve(clock())


def _own(lease: Lease, node: OwnerReference) -> None:
    """Make that Node an owner, in place of an earlier one of its name; other owners stay."""
    assert lease.metadata is not None
    owners = lease.metadata.ownerReferences or []
    lease.metadata.ownerReferences = [*(o for o in owners if (o.kind, o.name) != ("Node", node.name)), node]


def _spec(identity: str, acquired: datetime | None, renewed: datetime) -> LeaseSpec:
    seconds = names.AGENT_LEASE_SECONDS
    return LeaseSpec(holderIdentity=identity, leaseDurationSeconds=seconds, acquireTime=acquired, renewTime=renewed)
