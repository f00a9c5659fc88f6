"""The operator put together: edges built, tasks started, kopf run again when it fails, and all of it ended on a signal."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Final

from nodedevice_api import names
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from nodedevice_operator.core.events import transitions
from nodedevice_operator.core.records import NodeDeviceRecord
from nodedevice_operator.edges import credentials, http
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.capacity_work import CapacityWork
from nodedevice_operator.edges.client import THREADS, Client
from nodedevice_operator.edges.cluster import Cluster
from nodedevice_operator.edges.health import ApiHealth, Health
from nodedevice_operator.edges.lease_watch import LeaseWatch
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.node_work import NodeWork
from nodedevice_operator.edges.pod_device_work import PodDeviceWork
from nodedevice_operator.edges.reconciler import Reconciler
from nodedevice_operator.edges.recorder import Recorder
from nodedevice_operator.edges.sync import Sync
from nodedevice_operator.edges.watch import Watch
from nodedevice_operator.errors import ApiError, NotFound
from nodedevice_operator.settings import Settings

log = logging.getLogger(__name__)

_LONGEST_DELAY_SECONDS: Final = 15.0
_BEAT_SECONDS: Final = 1.0


class Operator:
    """All edges of one process, and how they hang together."""

    def __init__(self, settings: Settings) -> None:
        """Raises CredentialsError when there is nothing to log in with. Starts nothing."""
        self._settings = settings
        login = credentials.load(settings.kubeconfig)
        self._metrics = Metrics()
        self._cache = Cache()
        self._metrics.watch(self._cache)
        self._api_health = ApiHealth(login.server)
        self._health = Health(self._api_health, self._cache.waits_for)
        self._client = Client(login, self._api_health, self._metrics)
        self._cluster = Cluster(self._client, settings.leases_namespace)
        self._recorder = Recorder(self._cluster, self._metrics)
        self._reconciler = Reconciler(self._look, self._metrics)
        touch = self._reconciler.touch
        self._leases = LeaseWatch(self._cluster, touch, self._cache.node_devices.nodes)
        self._node_work = NodeWork(
            self._cache,
            self._cluster,
            self._leases,
            CapacityWork(self._cache, self._cluster, self._recorder, self._metrics),
            PodDeviceWork(self._cache, self._cluster, self._recorder),
            self._hear,
            lambda: self._reconciler.is_crowded,
        )
        self._sync = Sync(self._cache, self._cluster, touch)
        self._watch = Watch(self._cache, self._sync, touch, self._hear, login, self._api_health)
        self._stop = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a request is still out, whose thread would hold up the end of the process."""
        return self._client.is_busy

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT. Raises SettingsError when the HTTP address cannot be had."""
        self._take_signals()
        host, port = http.serve(self._settings.http_endpoint, self._health, self._metrics.registry)
        log.info("serving", extra={"address": f"{host}:{port}", "server": self._api_health.server})
        # these exist before kopf runs, which ends every task that came after it
        tasks = [asyncio.create_task(work, name=name) for name, work in self._tasks().items()]
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                await asyncio.gather(*(task for task in tasks if task.done()))
        finally:
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            self._client.close()
        log.info("stopped")

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "beat": self._beat(),
            "events": self._recorder.work(),
            "sync": self._sync.work(),
            "leases": self._leases.work(),
            "watch": self._watch_until_stopped(),
            **{f"reconcile-{number}": self._reconciler.work() for number in range(THREADS)},
        }

    async def _look(self, node: str) -> float | None:
        return await self._node_work.look(node)

    def _hear(self, before: NodeDeviceRecord | None, now: NodeDeviceRecord) -> None:
        """A NodeDevice changed: have its node looked at, and tell what happened to it."""
        self._reconciler.touch(now.node)
        for event in transitions(before, now):
            self._recorder.post(event)

    async def _beat(self) -> None:
        while True:
            self._health.turned()
            await asyncio.sleep(_BEAT_SECONDS)

    async def _watch_until_stopped(self) -> None:
        await self._wait_for_api()
        failures = 0
        while not self._stop.is_set():
            try:
                await self._watch.run()
            except Exception as exc:
                failures += 1
                delay = min(2.0 ** min(failures, 8) * 0.25, _LONGEST_DELAY_SECONDS)
                problem = f"{type(exc).__name__}: {exc}"
                log.warning("watch failed and begins anew", extra={"problem": problem, "seconds": delay})
                self._take_signals()  # kopf had them
                await asyncio.sleep(delay)
            else:
                self._stop.set()  # kopf took the signal

    async def _wait_for_api(self) -> None:
        """Return when the API server serves our kinds; kopf looks only once which there are."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(ApiError),
            wait=wait_random_exponential(0.25, _LONGEST_DELAY_SECONDS),
            before_sleep=_tell_missing_kinds,
        ):
            with attempt:
                missing = {names.NODE_DEVICES, names.POD_DEVICES} - await self._cluster.served_kinds()
                if missing:
                    raise NotFound("get", ", ".join(sorted(missing)), "not served yet")

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)


def _tell_missing_kinds(state: RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome else None
    if isinstance(failure, NotFound) and state.attempt_number == 1:
        log.error("the kinds of nodedevice.io are not served; install the CRDs, it goes on by itself then")
