"""The extender put together: informers, the election, the port of kube-scheduler and that of probes and metrics; and its end."""

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.http_server import Protection, protection
from nodedevice_common.text import clean

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.lease_follower import LeaseFollower
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.server import Server
from nodedevice_operator.extender.settings import ExtenderSettings
from nodedevice_operator.extender.stores import KINDS, FleetStores
from nodedevice_operator.extender.verbs import Verbs
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.lists import Cluster
from nodedevice_operator.kube.reviews import Reviews
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import LEASE_REQUESTS, Election, LeaderLeases, identity
from nodedevice_operator.leases.leader_election import Timing
from nodedevice_operator.life import begin, run_tasks
from nodedevice_operator.vital import vital

log = logging.getLogger(__name__)

_BEAT_SECONDS: Final = 1.0
# Longer than nearly every bind takes; the next leader need not wait for longer ones.
_SETTLE_SECONDS: Final = 0.3


class Extender:
    def __init__(self, settings: ExtenderSettings) -> None:
        """Starts nothing. Raises CredentialsError without credentials."""
        self._settings = settings
        self._login = login = credentials.load(settings.kubeconfig)
        self._metrics = metrics = ExtenderMetrics()
        self._api_health = ApiHealth(login.server, role="nodedevice-extender")
        self._fence = fence = WriteFence()
        self._client = client = Client(login, self._api_health, metrics.writes, fence)
        self._clients = [client]
        timing = Timing(settings.leader_lease_seconds)
        fleet = Fleet()
        binder = Binder(fleet, PodsApi(client, int(timing.lease_seconds - timing.deadline_seconds)), metrics)
        stores = FleetStores(fleet, binder.seen)
        metrics.watch(stores, fleet.promised_units)
        cluster = Cluster(client)
        informers = {kind.name: Informer(kind, stores, cluster, client) for kind in KINDS}
        self._activity = activity = Activity(fence, tuple(informers.values()))
        metrics.active.set_function(lambda: float(not activity.problem()))
        self._health = Health(self._api_health, self._waits_for)
        self._stores = stores
        verbs = Verbs(fleet, binder, activity, settings.policy).by_name()
        self._server = Server(settings.endpoint, settings.tls, verbs, metrics)
        watchdog = Watchdog(stores, cluster, self._api_health, settings.watchdog_seconds, kinds=KINDS)
        self._election: Election | None = None
        self._work: dict[str, Coroutine[Any, Any, None]] = {
            "beat": vital("beat", self._beat),
            "port": vital("port", self._server.work),
            "binds": vital("binds", binder.work),
            "activity": vital("activity", activity.work),
            "watchdog": vital("watchdog", watchdog.work),
            **{f"watch-{kind}": vital(f"watch-{kind}", informer.work) for kind, informer in informers.items()},
            **self._elections(timing),
        }
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT.

        Raises OperatorSettingsError when an address or a certificate cannot be used, StaleWatch for a watch that does not deliver
        what the API server has, and TaskEnded for what can only be a bug.
        """
        begin(self._stop)
        try:
            await self._serve()
            await run_tasks(self._work, self._stop, self._release)
        finally:
            await self._server.close()
            for work in self._work.values():
                work.close()
            for client in self._clients:
                await client.close()
        log.info("stopped")

    async def _serve(self) -> None:
        host, port = await self._server.start()
        http = self._health.serve(self._settings.http_endpoint, self._metrics.registry, self._protection())
        log.info("serving kube-scheduler", extra={"address": f"{host}:{port}", "tls": self._settings.tls is not None})
        log.info("serving", extra={"address": f"{http[0]}:{http[1]}", "server": self._api_health.server})

    async def _release(self) -> None:
        if self._election is not None:
            # another extender waits for it
            await self._election.end(lambda: self._client.settle(_SETTLE_SECONDS))
        await self._server.close()

    def _waits_for(self) -> tuple[str, ...]:
        """Why it is not ready, in words. Where a Service chooses by readiness, only the active one may be ready."""
        missing = self._stores.waits_for()
        if missing or self._settings.followed is not None:
            return missing
        return tuple(filter(None, (self._activity.problem(),)))

    def _elections(self, timing: Timing) -> dict[str, Coroutine[Any, Any, None]]:
        """Our part in the election, with connections of its own: a crowd of other requests must not hold it up."""
        if not self._settings.leader_elect:
            self._fence.open_for_good()
            self._activity.begin_term(True)
            return {}
        client = Client(self._login, self._api_health, self._metrics.writes, concurrent=LEASE_REQUESTS)
        self._clients.append(client)
        namespace = self._settings.namespace or self._login.settings.namespace or names.SYSTEM_NAMESPACE
        leases = LeaderLeases(client, namespace, names.EXTENDER_LEASE, self._settings.instance)
        followed = self._settings.followed
        self._election = election = Election(
            leases,
            self._fence,
            timing,
            identity(),
            self._activity.begin_term,
            is_candidate=followed is None,
        )
        if followed is None:
            return {"election": vital("election", election.work)}
        schedulers = LeaderLeases(self._short_client(timing), *followed)
        follower = LeaseFollower(
            schedulers, election, clean(socket.gethostname()), lambda: self._client.settle(_SETTLE_SECONDS)
        )
        return {
            "election": vital("election", election.work),
            "followed-lease": vital("followed-lease", follower.work),
        }

    def _short_client(self, timing: Timing) -> Client:
        read_seconds = timing.lease_seconds / 2
        client = Client(self._login, self._api_health, self._metrics.writes, concurrent=1, read_seconds=read_seconds)
        self._clients.append(client)
        return client

    def _protection(self) -> Protection:
        settings = self._settings
        # opens no connection before it is asked
        client = Client(self._login, self._api_health, self._metrics.writes, concurrent=2)
        self._clients.append(client)
        chain, key = settings.metrics_tls_certificate, settings.metrics_tls_key
        try:
            return protection(settings.metrics_authentication, chain, key, Reviews(client).create)
        except ValueError as exc:
            raise OperatorSettingsError("metricsAuthentication", str(exc)) from exc

    async def _beat(self) -> None:
        while True:
            self._health.heartbeat.beat()
            await asyncio.sleep(_BEAT_SECONDS)
