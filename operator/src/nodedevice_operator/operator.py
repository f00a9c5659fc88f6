"""The operator put together. kopf runs its life: start-up, log-in, and a shut-down, at a signal, that gives up the lead first.

A second life of kopf watches the NodeDeviceConfigs, which are few (config_watch.py); of other kinds see docs/decisions/0009.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

import kopf
from nodedevice_api import names
from nodedevice_common.http_server import Protection, protection
from nodedevice_common.tasks import ended, log_failed_callbacks, retried
from nodedevice_common.text import shown

from nodedevice_operator.capacity.reconciler import CapacityApi, CapacityReconciler
from nodedevice_operator.config_watch import ConfigWatch, kopf_settings
from nodedevice_operator.configs.controller import LEASES, ConfigController, ConfigsApi, refusing_leases
from nodedevice_operator.errors import OperatorError, OperatorSettingsError, TaskEnded
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache, Store, Stores
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import CONCURRENT_REQUESTS, Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.lists import KINDS, Cluster
from nodedevice_operator.kube.reviews import Reviews
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_monitor import AgentMonitor, AgentsApi
from nodedevice_operator.leases.elector import LEASE_REQUESTS, Election, LeaderLeases, identity
from nodedevice_operator.leases.leader_election import Timing
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder, EventsApi
from nodedevice_operator.reconcile.condition_reconciler import ConditionsApi, ConditionsReconciler
from nodedevice_operator.reconcile.cordon_reconciler import CordonReconciler, CordonsApi
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceReconciler, PodDevicesApi
from nodedevice_operator.remediation.eviction_controller import EvictionController, EvictionsApi
from nodedevice_operator.remediation.gone_nodedevices import GoneNodeDevices, NodeDevicesApi
from nodedevice_operator.remediation.node_label_controller import NodeLabelController, NodeLabelsApi
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi
from nodedevice_operator.settings import OperatorSettings
from nodedevice_operator.shared_slices import SharedSlices
from nodedevice_operator.vital import vital
from nodedevice_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Our name among kopf's peers, of which there are none. Unnamed it would ask for its user's name, and an image's number has none.
_PEER: Final[Any] = "nodedevice-operator"
_BEAT_SECONDS: Final = 1.0
_KOPF_END_SECONDS: Final = 0.2
# Longer than nearly every write takes; whoever takes over need not wait for longer ones.
_SETTLE_SECONDS: Final = 0.3


class Operator:
    """All parts of one process, and how they are connected."""

    def __init__(self, settings: OperatorSettings) -> None:
        """Starts nothing. Raises CredentialsError when there is nothing to log in with."""
        self._settings = settings
        self._login = login = credentials.load(settings.kubeconfig)
        self._metrics = metrics = Metrics()
        self._cache = cache = Cache()
        metrics.watch(cache)
        self._api_health = ApiHealth(login.server)
        self._health = Health(self._api_health, cache.waits_for)
        self._fence = fence = WriteFence()
        metrics.leader.set_function(lambda: float(fence.is_open))
        self._client = client = Client(login, self._api_health, metrics.writes, fence)
        self._clients = [client]
        self._election = self._candidacy(login)
        self._recorder = recorder = EventRecorder(EventsApi(client), metrics, fence)
        self._queue = queue = WorkQueue(metrics, fence, cache.node_devices.count)
        self._api_health.on_recovery = queue.retry_now
        self._agents = AgentMonitor(
            AgentsApi(client, settings.leases_namespace),
            cache,
            queue,
            metrics,
            recorder,
            settings.agent_grace_seconds,
            settings.agent_poll_seconds,
        )
        configs = ConfigsApi(client)
        refusing = Stores({LEASES: Store()}, ("Leases of agents that refuse a configuration",))
        self._configs = ConfigController(configs, fence, recorder, refusing.stores[LEASES])
        refusing.on_list = self._configs.refusals_changed
        metrics.registry.register(self._configs)
        self._config_watch = ConfigWatch(configs, self._configs, self._session, self._take_signals, _SIGNALS)
        self._agents.on_poll = self._configs.leases_are
        annotator = PodAnnotator(UnboundPodsApi(client), is_on=settings.mark_waiting_pods)
        self._required_plugins = RequiredPluginsController(
            RequiredPluginsApi(client, settings.instance),
            annotator,
            cache,
            queue,
            metrics,
            fence,
            recorder,
            is_on=settings.required_plugins,
            patterns=settings.required_plugin_names,
        )
        self._capacity = CapacityReconciler(cache, CapacityApi(client), recorder, metrics, self._required_plugins)
        pod_devices = PodDeviceReconciler(cache, PodDevicesApi(client, settings.instance), recorder)
        conditions = ConditionsReconciler(cache, ConditionsApi(client), self._agents, self._required_plugins, recorder)
        cordons = CordonReconciler(cache, CordonsApi(client), recorder)
        self._evictions, self._node_labels, self._gone = self._remediation(client)
        self._nodes = NodeReconciler(
            cache,
            self._agents,
            self._capacity,
            pod_devices,
            conditions,
            cordons,
            queue,
            fence,
            on_done=self._gone.reconciled,
        )
        cluster = Cluster(client)
        self._informers = {kind.name: Informer(kind, cache, cluster, client) for kind in KINDS}
        leases = refusing_leases(settings.leases_namespace)
        self._informers["refusals"] = Informer(leases, refusing, cluster, client)
        self._shared_slices = SharedSlices(client, fence)
        metrics.registry.register(self._shared_slices)
        self._watchdog = Watchdog(cache, cluster, self._api_health, settings.watchdog_seconds)
        self._subscribe()
        self._running: list[asyncio.Task[None]] = []
        self._failed: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._kopf: asyncio.Task[None] | None = None
        self._is_cleaned_up = False
        # by a signal or a failed task, when the clean-up began; kopf cleans up after a failure of its own, too
        self._is_to_stop = False

    def _remediation(self, client: Client) -> tuple[EvictionController, NodeLabelController, GoneNodeDevices]:
        settings, cache, fence = self._settings, self._cache, self._fence
        evictions = EvictionController(
            cache,
            EvictionsApi(client),
            self._recorder,
            settings.held_device_policy,
            fence,
            delay_seconds=settings.eviction_delay_seconds,
            per_minute=settings.evictions_per_minute,
        )
        node_labels = NodeLabelController(
            cache, NodeLabelsApi(client), fence, taint=settings.node_taint, labels=settings.node_labels
        )
        return evictions, node_labels, GoneNodeDevices(cache, NodeDevicesApi(client), fence)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, which stop kopf.

        Raises OperatorSettingsError when the HTTP address cannot be had, StaleWatch for a watch that
        does not deliver what the API server has, and TaskEnded for what can only be a bug.
        """
        log_failed_callbacks()
        self._take_signals()
        # kopf takes them for itself while it starts; one that comes before they are ours again waits, and no thread takes it
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        host, port = self._health.serve(self._settings.http_endpoint, self._metrics.registry, self._protection())
        log.info("serving", extra={"address": f"{host}:{port}", "server": self._api_health.server})
        life = kopf.operator(
            registry=self._registry(),
            settings=kopf_settings(),
            identity=_PEER,
            clusterwide=True,
            standalone=True,
            stop_flag=self._stop,
        )
        self._kopf = asyncio.create_task(life, name="kopf")
        try:
            await asyncio.wait([self._kopf])
        finally:
            self._take_signals()
            # again, for a signal that came before kopf had started everything
            await self._clean_up()
            # not sooner: a request of kopf that is still running would fail, and that would look like a failure of kopf
            for client in self._clients:
                await client.close()
        error_of_kopf = None if self._kopf.cancelled() else self._kopf.exception()
        # asked to stop, it may well end with one: its own requests, retried without end, fail when it closes its session
        if error_of_kopf is not None and not self._is_to_stop:
            self._failed = self._kopf
        if self._failed is not None:
            _raise_failure(self._failed)
        log.info("stopped")

    def _protection(self) -> Protection:
        settings = self._settings
        # opens no connection before it is asked
        client = Client(self._login, self._api_health, self._metrics.writes, concurrent=2)
        self._clients.append(client)
        try:
            return protection(
                settings.metrics_authentication, settings.tls_certificate, settings.tls_key, Reviews(client).create
            )
        except ValueError as exc:
            raise OperatorSettingsError("metricsAuthentication", str(exc)) from exc

    def _take_signals(self) -> None:
        """Back from kopf, which would stop as well, but without a trace of whether a signal or its own failure was the cause."""
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        # neither is tried a second time
        kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(self._start)
        kopf.on.login(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(self._log_in)
        kopf.on.cleanup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(self._clean_up)
        return registry

    async def _start(self, **_: Any) -> None:
        # kopf takes the signals when it has created its tasks, and this is one of them
        asyncio.get_running_loop().call_soon(self._take_signals)
        for name, work in self._tasks().items():
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(self._task_ended)
            self._running.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """None of them ever ends by itself; at the clean-up all do, the election's as soon as it has given up the lead."""
        if not self._is_cleaned_up and self._failed is None:
            self._failed = task
        self._stop.set()

    async def _log_in(self, **_: Any) -> kopf.AiohttpSession:
        return self._session()

    def _session(self) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=self._api_health.server, aiohttp_session=self._client.lend_session())

    async def _clean_up(self, **_: Any) -> None:
        if self._is_cleaned_up:
            return
        self._is_cleaned_up, self._is_to_stop = True, self._stop.is_set()
        if self._election is not None:
            # first of all: another operator waits for it
            await self._election.end(lambda: self._client.settle(_SETTLE_SECONDS))
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        # kopf would wait 5 s for its own task that waits for this, and as long for requests with which it is not done
        self._stop.set()
        if self._kopf is not None and self._is_to_stop:
            asyncio.get_running_loop().call_later(_KOPF_END_SECONDS, self._kopf.cancel)

    def _candidacy(self, login: credentials.Credentials) -> Election | None:
        """Our part in the election, with connections of its own: a crowd of other requests must not hold it up."""
        if not self._settings.leader_elect:
            self._fence.open_for_good()
            return None
        timing = Timing(self._settings.leader_lease_seconds)
        client = Client(login, self._api_health, self._metrics.writes, concurrent=LEASE_REQUESTS)
        self._clients.append(client)
        namespace = self._settings.namespace or login.namespace or names.SYSTEM_NAMESPACE
        leases = LeaderLeases(client, namespace, instance=self._settings.instance)
        return Election(leases, self._fence, timing, identity(), self._lead)

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """By name. What is about single objects, or for showing, does not end the others."""
        election = {} if self._election is None else {"election": vital("election", self._election.work)}
        vital_kinds = {kind.name for kind in KINDS}
        is_dra_observed = self._settings.observe_dra
        shared_slices = {"shared-slices": retried("shared-slices", self._shared_slices.work)} if is_dra_observed else {}
        return {
            "beat": vital("beat", self._beat),
            **election,
            "watchdog": vital("watchdog", self._watchdog.work),
            "events": retried("events", self._recorder.work),
            "leases": vital("leases", self._agents.work),
            "policy": retried("policy", self._required_plugins.work),
            "configs": retried("configs", self._configs.work),
            "watch-configs": retried("watch-configs", self._config_watch.work),
            "evictions": retried("evictions", self._evictions.work),
            "node-labels": retried("node-labels", self._node_labels.work),
            "gone-nodedevices": retried("gone-nodedevices", self._gone.work),
            **shared_slices,
            **{
                f"watch-{kind}": (vital if kind in vital_kinds else retried)(f"watch-{kind}", informer.work)
                for kind, informer in self._informers.items()
            },
            **{
                f"watch-{kind}": retried("watch-policy", partial(self._required_plugins.watch, kind), kind=kind)
                for kind in (POLICIES, BINDINGS)
            },
            **{
                f"reconcile-{number}": vital("reconcile", partial(self._queue.work, self._nodes.reconcile))
                for number in range(CONCURRENT_REQUESTS)
            },
        }

    def _subscribe(self) -> None:
        """Each change that a watch or a list brings enqueues its node; features get each watched NodeDevice."""
        self._cache.on_list = self._nodes.changed
        self._cache.nodes.on_update(self._node_changed)
        self._cache.pod_devices.on_update(self._node_changed)
        for handler in (
            self._agents.on_update,
            self._capacity.on_update,
            self._required_plugins.on_update,
            self._node_changed,
            self._recorder.on_update,
        ):
            self._cache.node_devices.on_update(handler)

    def _node_changed(self, node: str, _: object, __: object) -> None:
        self._nodes.changed(node)

    def _lead(self, another_wrote: bool, nobody_since: float) -> None:
        """Begin to write, for the first time or again."""
        self._recorder.take_over(nobody_since)
        if another_wrote:
            self._capacity.forget_changes()
        self._required_plugins.wake()
        self._nodes.take_over(another_wrote, nobody_since)

    async def _beat(self) -> None:
        while True:
            self._health.heartbeat.beat()
            await asyncio.sleep(_BEAT_SECONDS)


def _raise_failure(task: asyncio.Task[Any]) -> None:
    """Raise what ended that task, one of those that never end; nothing where it was cancelled at the end."""
    if task.cancelled():
        return
    failure = task.exception()
    if isinstance(failure, OperatorError):
        raise failure
    # kopf's; ours raise OperatorError
    log.error("background task ended unexpectedly", extra={"task": task.get_name()}, exc_info=failure)
    why = shown(f"{type(failure).__name__}: {failure}") if failure else "it returned"
    raise TaskEnded(ended(task.get_name(), why)) from failure
