"""The operator put together. kopf serves NodeDeviceConfigs in one of its tasks; for other kinds see docs/decisions/0009."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from nodedevice_api import names
from nodedevice_common.tasks import retried

from nodedevice_operator.capacity.reconciler import CapacityApi, CapacityReconciler
from nodedevice_operator.configs.controller import LEASES, ConfigController, ConfigsApi, refusing_leases
from nodedevice_operator.configs.kopf_run import KopfRun
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache, Store, Stores
from nodedevice_operator.kube.client import CONCURRENT_REQUESTS
from nodedevice_operator.kube.lists import KINDS, Cluster
from nodedevice_operator.leases.agent_monitor import AgentMonitor, AgentsApi
from nodedevice_operator.leases.leader_election import Timing
from nodedevice_operator.life import Process, vital
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder, EventsApi
from nodedevice_operator.reconcile.condition_reconciler import ConditionsApi, ConditionsReconciler
from nodedevice_operator.reconcile.cordon_restorer import CordonReconciler, CordonsApi
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceReconciler, PodDevicesApi
from nodedevice_operator.remediation.eviction_controller import EvictionController, EvictionsApi
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelController, NodeLabelsApi
from nodedevice_operator.remediation.unused_nodedevices import GoneNodeDevices, NodeDevicesApi
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi
from nodedevice_operator.settings import OperatorSettings
from nodedevice_operator.shared_slices import SharedSlices
from nodedevice_operator.workqueue import WorkQueue


class Operator(Process):
    def __init__(self, settings: OperatorSettings) -> None:
        metrics = Metrics()
        self._cache = cache = Cache()
        chain = settings.tls_certificate, settings.tls_key
        super().__init__(settings, chain, metrics, cache.waits_for, "nodedevice-operator")
        client, fence = self._client, self._fence
        metrics.watch(cache)
        metrics.leader.set_function(lambda: float(fence.is_open))
        self._election = self._candidacy(names.OPERATOR_LEASE, Timing(settings.leader_lease_seconds), self._lead)
        self._recorder = recorder = EventRecorder(EventsApi(client), metrics, fence)
        self._queue = queue = WorkQueue(metrics, fence, cache.node_devices.count)
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
        self._configs = ConfigController(configs, fence, refusing.stores[LEASES])
        refusing.on_list = self._configs.refusals_changed
        metrics.registry.register(self._configs)
        self._kopf = KopfRun(configs, self._configs, self._login, self._api_health, fence)
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
        self._evictions = EvictionController(
            cache,
            EvictionsApi(client),
            recorder,
            settings.held_device_policy,
            fence,
            delay_seconds=settings.eviction_delay_seconds,
            per_minute=settings.evictions_per_minute,
        )
        self._node_labels = NodeLabelController(
            cache, NodeLabelsApi(client), fence, taint=settings.node_taint, labels=settings.node_labels
        )
        self._gone = GoneNodeDevices(cache, NodeDevicesApi(client), fence)
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
        self._is_dra_observed = settings.observe_dra
        self._subscribe()

    async def _start(self) -> None:
        # also reported by kopf's requests, in another thread
        call = asyncio.get_running_loop().call_soon_threadsafe
        self._api_health.on_recovery = lambda: call(self._queue.retry_now)
        await super()._start()

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks by name. A failed task for single objects, or for display, does not end the others."""
        election = {} if self._election is None else {"election": vital("election", self._election.work)}
        vital_kinds = {kind.name for kind in KINDS}
        is_on = self._is_dra_observed
        shared_slices = {"shared-slices": retried("shared-slices", self._shared_slices.work)} if is_on else {}
        return {
            "beat": vital("beat", self._beat),
            **election,
            "watchdog": vital("watchdog", self._watchdog.work),
            "events": retried("events", self._recorder.work),
            "leases": vital("leases", self._agents.work),
            "policy": retried("policy", self._required_plugins.work),
            "configs": retried("configs", self._configs.work),
            "watch-configs": retried("watch-configs", self._kopf.work),
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
        """Each change that a watch or a list brings enqueues its node; features get each watched NodeDevice.

        Events are also posted of what changed while no watch was open.
        """
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
        self._cache.node_devices.on_relist = self._recorder.on_update

    def _node_changed(self, node: str, _: object, __: object) -> None:
        self._nodes.changed(node)

    def _lead(self, another_wrote: bool, nobody_since: float) -> None:
        self._recorder.take_over(nobody_since)
        if another_wrote:
            self._capacity.forget_changes()
        self._required_plugins.wake()
        self._nodes.take_over(another_wrote, nobody_since)
