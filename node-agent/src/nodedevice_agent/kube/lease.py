"""The agent's heartbeat: a Lease named as the node, in the agents' namespace, renewed every 20 seconds give or take a tenth.

Written with PUT and the last resource version: one request a renewal. The Node owns it, so that both are deleted together. An
unreachable API server is not an error here: the operator sees the Lease expire. Annotations have the recent rejected
registrations and the state of the node's configurations; a label marks a refused configuration, for the operator's watch.

The holder is one process of one state directory, which is locked: a process of the same directory takes the Lease over at once.
Another process waits until the Lease has expired by its own clock. The holder stops when another process holds the Lease.
"""

import asyncio
import logging
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from nodedevice_api import names
from nodedevice_common import unauthorized
from nodedevice_common.pacing import TokenBucket, jittered
from nodedevice_common.text import clean
from nodedevice_kube.api_errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized
from nodedevice_kube.leases import Lease, Sighting, lease_of, spec_of
from nodedevice_kube.list_watch import number
from nodedevice_kube.paths import LEASES

from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import LeaseHeld
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import Json, KubeClient
from nodedevice_agent.kube.retries import log_failure

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0
_JITTER = 0.1
_RETRY_SECONDS = 5.0
# Rejections and changed configurations renew the Lease at once. They may come in quick succession: so many pass at once, then
# one per interval.
_NEWS_AT_ONCE = 2
_NEWS_SECONDS = 2.0
# The limit of the wait for a silent API server at the start: containers wait for their devices meanwhile.
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
        # the state of the NodeDeviceConfigs that select the node
        self._configs = ""
        self._is_config_refused = False
        self._health = health
        self._clock = clock
        # the object as written last; None: to be read or created first
        self._lease: Json | None = None
        # the resource version of the last write; 0: this process has never held it
        self._written = 0
        # the Lease of another holder
        self._foreign = Sighting()
        self._may_report = True
        self._is_logged = False

    def report_configs(self, text: str, is_refused: bool) -> None:
        """Report this state of the node's configurations soon. is_refused: whether one is refused."""
        if (text, is_refused) != (self._configs, self._is_config_refused):
            self._configs, self._is_config_refused = text, is_refused
            self._rejections.changed.set()

    async def acquire(self) -> None:
        """Wait while another agent holds the Lease.

        Returns without the Lease if the API server does not respond at the start: run() retries.
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
            except (ApiError, TimeoutError) as exc:
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
            # also if the API server rejects the report: a rejection ends the pause until the Lease is acquired
            rejections = self._rejections.report()
            reported = rejections if self._may_report else ""
            pause = _RETRY_SECONDS
            try:
                self._lease = await self._renewed(reported)
                self._succeeded()
                pause = jittered(RENEW_SECONDS, _JITTER, random.random())
            except ApiError as exc:
                is_denied = isinstance(exc, Forbidden) and not isinstance(exc, Unauthorized)
                if is_denied and (reported or (self._configs and self._may_report)):
                    # an admission policy older than this agent rejects the annotation: the renewal is more important
                    extra = {"error": str(exc)}
                    log.warning("admission policy forbids reports on the lease; omitting them", extra=extra)
                    self._lease, self._may_report = None, False
                    continue
                self._failed(exc)
                pause = max(pause, exc.retry_after_seconds)
            await _pause(pause, self._rejections.changed, news)

    def _succeeded(self) -> None:
        if self._is_logged:
            log.info("lease renewed after failures", extra={"lease": self._node_name})
        self._is_logged = False
        self._health.report("api server")

    def _failed(self, exc: ApiError) -> None:
        self._is_logged = self._is_logged or log_failure("lease renewal failed; retrying", exc, lease=self._node_name)
        if isinstance(exc, Conflict | NotFound):
            self._lease = None
        is_rejected = isinstance(exc, Unauthorized)
        why = unauthorized.problem(self._cluster.server) if is_rejected else "the lease cannot be renewed"
        self._health.report("api server", why)

    async def _renewed(self, rejections: str) -> Json:
        """The Lease as written. Raises LeaseHeld, ApiError."""
        now, found = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), self._lease
        send = self._cluster.replace_lease
        if found is None:
            uid = await self._cluster.node_uid(self._node_name)
            try:
                found = await self._cluster.get_lease(self._namespace, self._node_name)
            except NotFound:
                metadata = {"name": self._node_name, "namespace": self._namespace}
                found = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata}
                send = self._cluster.create_lease
            else:
                self._check_holder(lease_of(found))
            node = {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": uid}
            # an earlier Node of the name is replaced; other owners stay
            owners = found["metadata"].get("ownerReferences") or ()
            others = [o for o in owners if (o.get("kind"), o.get("name")) != ("Node", self._node_name)]
            found["metadata"]["ownerReferences"] = [*others, node]
        before = lease_of(found)
        self._annotate(found["metadata"], rejections)
        acquired = before.acquired if before.holder == self._identity else now
        found["spec"] = spec_of(Lease(self._identity, now, acquired, names.AGENT_LEASE_SECONDS))
        written = await send(found)
        self._written = number(lease_of(written).version)
        return written

    def _annotate(self, metadata: Json, rejections: str) -> None:
        reports = {
            names.REFUSALS_ANNOTATION: rejections,
            names.CONFIGS_ANNOTATION: self._configs if self._may_report else "",
        }
        is_refused = self._is_config_refused and self._may_report
        labels = {names.CONFIG_REFUSED_LABEL: "true" if is_refused else ""}
        for key, ours in (("annotations", reports), ("labels", labels)):
            others = {name: text for name, text in (metadata.get(key) or {}).items() if name not in ours}
            metadata[key] = others | {name: clean(text) for name, text in ours.items() if text}

    def _check_holder(self, lease: Lease) -> None:
        """Raises LeaseHeld unless the Lease may be taken: it is ours, was our predecessor's, or has expired."""
        if lease.holder in ("", self._identity) or number(lease.version) < self._written:
            # older than our own last write: the API server was restored from a backup
            return
        now = self._clock()
        self._foreign.saw(lease, now)
        has_expired = self._foreign.expires_in_seconds(now, names.AGENT_LEASE_SECONDS) < 0
        if self._written != 0 or (_agent_id(lease.holder) != _agent_id(self._identity) and not has_expired):
            raise LeaseHeld(f"{self._namespace}/{self._node_name}", lease.holder)


def _agent_id(holder: str) -> str:
    return holder.partition("_")[0]


async def _pause(seconds: float, is_news: asyncio.Event, news: TokenBucket) -> None:
    """Wait so many seconds; news ends the wait, within the bucket's limit."""
    clock = asyncio.get_running_loop().time
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await is_news.wait()
            await asyncio.sleep(news.wait_seconds(clock()))
            news.reserve(clock())
