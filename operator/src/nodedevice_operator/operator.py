"""The operator put together: edges built, tasks started, kopf run again when it fails, and all of it ended on a signal."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Final

from nodedevice_api import names
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from nodedevice_operator import probes as http
from nodedevice_operator.agents.api import AgentsApi
from nodedevice_operator.agents.monitor import AgentMonitor
from nodedevice_operator.capacity.api import CapacityApi
from nodedevice_operator.capacity.reconciler import CapacityReconciler
from nodedevice_operator.conditions.api import ConditionsApi
from nodedevice_operator.conditions.reconciler import ConditionsReconciler
from nodedevice_operator.errors import ApiError, NotFound, OperatorError, TaskEnded
from nodedevice_operator.events.api import EventsApi
from nodedevice_operator.events.recorder import EventRecorder
from nodedevice_operator.evictions.api import EvictionsApi
from nodedevice_operator.evictions.controller import EvictionController
from nodedevice_operator.informers.informer import RecordWatch
from nodedevice_operator.informers.intake import Intake
from nodedevice_operator.informers.kopf_nodes import Watch
from nodedevice_operator.informers.relist import Sync
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.api import Cluster
from nodedevice_operator.kube.client import CONCURRENT_REQUESTS, Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leader.election import Timing
from nodedevice_operator.leader.elector import Election, identity
from nodedevice_operator.leader.lease import LeaderLeases
from nodedevice_operator.leader.takeover import Takeover
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.nodelabels.api import NodeLabelsApi
from nodedevice_operator.nodelabels.controller import NodeLabelController
from nodedevice_operator.poddevices.api import PodDevicesApi
from nodedevice_operator.poddevices.reconciler import PodDeviceReconciler
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.requiredplugins.objects import PolicyObjects
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES
from nodedevice_operator.settings import Settings
from nodedevice_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

_LONGEST_DELAY_SECONDS: Final = 15.0
_BEAT_SECONDS: Final = 1.0
# Longer than nearly every write takes; whoever takes over need not wait for longer ones.
_SETTLE_SECONDS: Final = 0.3


class Operator:
    """All edges of one process, and how they hang together."""

    def __init__(self, settings: Settings) -> None:
        """Starts nothing. Raises CredentialsError when there is nothing to log in with."""
        self._settings = settings
        login = credentials.load(settings.kubeconfig)
        self._metrics = Metrics()
        self._cache = Cache()
        self._metrics.watch(self._cache)
        self._api_health = ApiHealth(login.server)
        self._health = Health(self._api_health, self._cache.waits_for)
        self._fence = WriteFence()
        self._metrics.leader.set_function(lambda: float(self._fence.is_open))
        self._client = Client(login, self._api_health, self._metrics.writes, self._fence)
        self._clients = [self._client]
        self._takeover = Takeover()
        self._election = self._candidacy(login)
        self._cluster = Cluster(self._client)
        self._recorder = EventRecorder(EventsApi(self._client), self._metrics, self._fence)
        self._queue = WorkQueue(self._metrics)
        self._api_health.when_back(self._queue.retry_now)
        self._agents = AgentMonitor(
            AgentsApi(self._client, settings.leases_namespace),
            self._cache,
            self._queue,
            self._metrics,
            self._recorder,
            settings.agent_grace_seconds,
            settings.agent_poll_seconds,
        )
        self._required_plugins = RequiredPluginsController(
            PolicyObjects(self._client),
            PodAnnotator(UnboundPodsApi(self._client), is_on=settings.mark_waiting_pods),
            self._cache,
            self._queue,
            self._metrics,
            self._fence,
            is_on=settings.required_plugins,
        )
        self._capacity = CapacityReconciler(
            self._cache, CapacityApi(self._client), self._recorder, self._metrics, self._required_plugins
        )
        conditions = ConditionsReconciler(
            self._cache, ConditionsApi(self._client), self._agents, self._required_plugins, self._recorder
        )
        self._nodes = NodeReconciler(
            self._cache,
            self._agents,
            self._capacity,
            PodDeviceReconciler(self._cache, PodDevicesApi(self._client), self._recorder),
            conditions,
            self._queue,
            self._fence,
            self._takeover,
        )
        self._evictions = EvictionController(
            self._cache,
            EvictionsApi(self._client),
            self._recorder,
            settings.held_device_policy,
            self._fence,
            delay_seconds=settings.eviction_delay_seconds,
            per_minute=settings.evictions_per_minute,
        )
        self._node_labels = NodeLabelController(
            self._cache,
            NodeLabelsApi(self._client),
            self._fence,
            taint=settings.node_taint,
            labels=settings.node_labels,
        )
        self._subscribe()
        self._sync = Sync(self._cache, self._cluster, self._queue.enqueue)
        intake = Intake(self._cache)
        self._watch = Watch(self._sync, intake, login, self._api_health)
        self._record_watch = RecordWatch(self._sync, intake, self._client)
        self._watchdog = Watchdog(self._cache, self._cluster, self._api_health, settings.watchdog_seconds)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT.

        Raises SettingsError when the HTTP address cannot be had, Behind when the watch fails to bring what there is, and TaskEnded
        for what can only be a bug.
        """
        self._take_signals()
        host, port = http.serve(self._settings.http_endpoint, self._health, self._metrics.registry)
        log.info("serving", extra={"address": f"{host}:{port}", "server": self._api_health.server})
        # these exist before kopf runs, which ends every task that came after it
        tasks = [asyncio.create_task(work, name=name) for name, work in self._tasks().items()]
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                _raise_for(next(task for task in tasks if task.done()))
        finally:
            if self._election is not None:
                # first of all: another operator waits for it
                await self._election.end(lambda: self._client.settle(_SETTLE_SECONDS))
            for task in (stopped, *tasks):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)
            for client in self._clients:
                await client.close()
        log.info("stopped")

    def _candidacy(self, login: credentials.Credentials) -> Election | None:
        """Our part in the election, with connections of its own: a crowd of other requests must not hold it up."""
        if not self._settings.leader_elect:
            self._fence.open_for_good()
            return None
        timing = Timing(self._settings.leader_lease_seconds)
        client = Client(
            login, self._api_health, self._metrics.writes, concurrent=1, read_seconds=timing.lease_seconds / 2
        )
        self._clients.append(client)
        namespace = self._settings.namespace or login.namespace or names.SYSTEM_NAMESPACE
        return Election(LeaderLeases(client, namespace), self._fence, timing, identity(), self._lead)

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        election = {} if self._election is None else {"election": self._election.work()}
        return {
            "beat": self._beat(),
            **election,
            "watchdog": self._watchdog.work(),
            "events": self._recorder.work(),
            "sync": self._sync.work(),
            "leases": self._agents.work(),
            "watch": self._watch_until_stopped(),
            "policy": self._required_plugins.work(),
            "evictions": self._evictions.work(),
            "marks": self._node_labels.work(),
            **{f"watch-{kind}": self._record_watch.work(kind) for kind in (names.NODE_DEVICES, names.POD_DEVICES)},
            **{f"watch-{kind}": self._required_plugins.watch(kind) for kind in (POLICIES, BINDINGS)},
            **{f"reconcile-{number}": self._queue.work(self._nodes.reconcile) for number in range(CONCURRENT_REQUESTS)},
        }

    def _subscribe(self) -> None:
        """Each change that a watch brings enqueues its node; the features that need to know of a NodeDevice are called."""
        self._cache.nodes.on_update(self._queue.on_update)
        self._cache.pod_devices.on_update(self._queue.on_update)
        for handler in (
            self._agents.on_update,
            self._capacity.on_update,
            self._required_plugins.on_update,
            self._queue.on_update,
            self._recorder.on_update,
        ):
            self._cache.node_devices.on_update(handler)

    def _lead(self, another_wrote: bool, nobody_since: float) -> None:
        """Begin to write, for the first time or again: reconcile every node, first those that changed while nobody led."""
        self._recorder.take_over(nobody_since)
        if another_wrote:
            self._nodes.forget()
        self._capacity.forget_changes()
        self._required_plugins.wake()
        for node in self._takeover.skipped(nobody_since):
            self._queue.enqueue(node)
        self._queue.enqueue_all(self._cache.names_of_nodes())

    async def _beat(self) -> None:
        while True:
            self._health.turned()
            # kopf takes the signals for itself when it starts; ours give up the lead at once, and end kopf as well
            self._take_signals()
            await asyncio.sleep(_BEAT_SECONDS)

    async def _watch_until_stopped(self) -> None:
        await self._wait_for_api()
        await self._watch.work()
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


def _raise_for(task: asyncio.Task[Any]) -> None:
    """Raise what ended that task, one of those that never end."""
    failure = task.exception()
    if isinstance(failure, OperatorError):
        raise failure
    log.error("a task that never ends has ended", extra={"task": task.get_name()}, exc_info=failure)
    raise TaskEnded(task.get_name(), f"{type(failure).__name__}: {failure}" if failure else "it returned") from failure


def _tell_missing_kinds(state: RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome else None
    if isinstance(failure, NotFound) and state.attempt_number == 1:
        log.error("the kinds of nodedevice.io are not served; install the CRDs, it goes on by itself then")
