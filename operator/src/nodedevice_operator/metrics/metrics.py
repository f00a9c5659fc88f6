"""The operator's Prometheus metrics. Labels are bounded: kinds, verbs, causes, and the first resource names."""

import prometheus_client

from nodedevice_operator import __version__
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.metrics.inventory import InventoryCollector


class Metrics:
    """Counters and histograms of the operator; gauges are computed from the cache at every scrape."""

    def __init__(self) -> None:
        # an unneeded second series for each counter
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = prometheus_client.CollectorRegistry()
        # memory and CPU of this process, which have budgets
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.Gauge(
            "nodedevice_operator_info", "1; the release of this operator.", ["version"], registry=self.registry
        ).labels(version=__version__).set(1)
        self.reconcile_seconds = prometheus_client.Histogram(
            "nodedevice_operator_reconcile_duration_seconds",
            "Duration of one reconcile of one node, writes included.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self.registry,
        )
        self.change_to_node_seconds = prometheus_client.Histogram(
            "nodedevice_operator_change_to_node_seconds",
            "Time from a change of a NodeDevice to the write of its Node.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0),
            registry=self.registry,
        )
        self.waiting_nodes = prometheus_client.Gauge(
            "nodedevice_operator_waiting_nodes", "Nodes that wait to be reconciled.", registry=self.registry
        )
        self.failing_nodes = prometheus_client.Gauge(
            "nodedevice_operator_failing_nodes",
            "Nodes whose last reconcile failed; they are retried with growing delays.",
            registry=self.registry,
        )
        self.reconcile_failures = prometheus_client.Counter(
            "nodedevice_operator_reconcile_failures_total",
            "Reconciles of a node that failed and are retried.",
            registry=self.registry,
        )
        self.writes = prometheus_client.Counter(
            "nodedevice_operator_api_writes_total",
            "Write requests sent to the API server, by kind and outcome: ok, or the kind of error.",
            ["kind", "verb", "outcome"],
            registry=self.registry,
        )
        self.drift_repairs = prometheus_client.Counter(
            "nodedevice_operator_drift_repairs_total",
            "Foreign changes of advertised capacity that were undone.",
            ["cause"],
            registry=self.registry,
        )
        for cause in ("changed", "zeroed", "removed"):
            self.drift_repairs.labels(cause=cause)
        self.events_lost = prometheus_client.Counter(
            "nodedevice_operator_events_lost_total",
            "Kubernetes Events that could not be posted.",
            registry=self.registry,
        )

        self.agents = prometheus_client.Gauge(
            "nodedevice_operator_agents",
            "Nodes with NodeDevices, by the state of their agent; withdrawn: silent for so long that free devices are not offered.",
            ["state"],
            registry=self.registry,
        )
        self.agent_outage = prometheus_client.Gauge(
            "nodedevice_operator_agents_silent_together",
            "Agents that fell silent together with many others, which is taken for an outage; nothing of theirs is withdrawn.",
            registry=self.registry,
        )
        self.policy_names = prometheus_client.Gauge(
            "nodedevice_operator_required_plugins_names",
            "Resource names in the policy that makes pods wait for their node's agent; 0 where it is incomplete, or off.",
            registry=self.registry,
        )
        self.leader = prometheus_client.Gauge(
            "nodedevice_operator_leader",
            "1 while this process may write.",
            registry=self.registry,
        )

    def watch(self, cache: Cache) -> None:
        """Count the objects in `cache` at every scrape."""
        self.registry.register(InventoryCollector(cache))
