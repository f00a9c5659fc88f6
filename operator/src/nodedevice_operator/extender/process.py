"""The extender put together: informers, the election, the port of kube-scheduler and that of probes and metrics; and its end."""

import logging
import socket
from collections.abc import Coroutine
from typing import Any

from nodedevice_api import names
from nodedevice_common.text import clean

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
from nodedevice_operator.kube.lists import Cluster
from nodedevice_operator.leases.elector import LeaderLeases
from nodedevice_operator.leases.leader_election import Timing
from nodedevice_operator.life import Process, vital

log = logging.getLogger(__name__)


class Extender(Process):
    def __init__(self, settings: ExtenderSettings) -> None:
        metrics = ExtenderMetrics()
        chain = settings.metrics_tls_certificate, settings.metrics_tls_key
        super().__init__(settings, chain, metrics, self._waits_for, "nodedevice-extender")
        client = self._client
        self._followed, self._is_tls = settings.followed, settings.tls is not None
        timing = Timing(settings.leader_lease_seconds)
        fleet = Fleet()
        binder = Binder(fleet, PodsApi(client, int(timing.lease_seconds - timing.deadline_seconds)), metrics)
        stores = FleetStores(fleet, binder.seen)
        metrics.watch(stores, fleet.promised_units)
        cluster = Cluster(client)
        informers = {kind.name: Informer(kind, stores, cluster, client) for kind in KINDS}
        self._activity = activity = Activity(self._fence, tuple(informers.values()))
        metrics.active.set_function(lambda: float(not activity.problem()))
        self._stores = stores
        names_best = settings.filter_response == "best"
        verbs = Verbs(fleet, binder, activity, settings.policy, names_best=names_best).by_name()
        self._server = Server(settings.endpoint, settings.tls, verbs, metrics)
        watchdog = Watchdog(stores, cluster, self._api_health, settings.watchdog_seconds, kinds=KINDS)
        self._work: dict[str, Coroutine[Any, Any, None]] = {
            "beat": vital("beat", self._beat),
            "port": vital("port", self._server.work),
            "binds": vital("binds", binder.work),
            "activity": vital("activity", activity.work),
            "watchdog": vital("watchdog", watchdog.work),
            **{f"watch-{kind}": vital(f"watch-{kind}", informer.work) for kind, informer in informers.items()},
            **self._elections(timing),
        }

    async def _start(self) -> None:
        host, port = await self._server.start()
        log.info("serving kube-scheduler", extra={"address": f"{host}:{port}", "tls": self._is_tls})
        await super()._start()

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return self._work

    async def _release(self) -> None:
        await super()._release()
        await self._server.close()

    async def _close(self) -> None:
        await self._server.close()
        for work in self._work.values():
            work.close()
        await super()._close()

    def _waits_for(self) -> tuple[str, ...]:
        """Why it is not ready, in words. Where a Service chooses by readiness, only the active one may be ready."""
        missing = self._stores.waits_for()
        if missing or self._followed is not None:
            return missing
        return tuple(filter(None, (self._activity.problem(),)))

    def _elections(self, timing: Timing) -> dict[str, Coroutine[Any, Any, None]]:
        followed, begin_term = self._followed, self._activity.begin_term
        is_candidate = followed is None
        self._election = election = self._candidacy(names.EXTENDER_LEASE, timing, begin_term, is_candidate=is_candidate)
        if election is None:
            begin_term(True)
            return {}
        tasks = {"election": vital("election", election.work)}
        if followed is not None:
            client = self._connect(concurrent=1, read_seconds=timing.lease_seconds / 2)
            schedulers, host_name = LeaderLeases(client, *followed), clean(socket.gethostname())
            follower = LeaseFollower(schedulers, election, host_name, self._settle)
            tasks["followed-lease"] = vital("followed-lease", follower.work)
        return tasks
