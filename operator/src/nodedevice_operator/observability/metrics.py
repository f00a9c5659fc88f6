"""The operator's Prometheus metrics. Labels are bounded: kinds, verbs, causes, and the first resource names."""

from functools import partial

import prometheus_client
from nodedevice_common.tasks import TaskFailures

from nodedevice_operator import __version__
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.observability.inventory import InventoryCollector


class ProgramMetrics:
    """Metrics that operator and extender have alike. program: the word in their names."""

    def __init__(self, program: str) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._counter = partial(prometheus_client.Counter, registry=self.registry)
        self._gauge = partial(prometheus_client.Gauge, registry=self.registry)
        self._histogram = partial(prometheus_client.Histogram, registry=self.registry)
        # memory and CPU of this process, which have budgets
        prometheus_client.ProcessCollector(registry=self.registry)
        self.registry.register(TaskFailures(f"nodedevice_{program}"))
        info = self._gauge(f"nodedevice_{program}_info", f"1; the release of this {program}.", ["version"])
        info.labels(version=__version__).set(1)
        self.writes = self._counter(
            f"nodedevice_{program}_api_writes_total",
            "Write requests sent to the API server, by kind and outcome: ok, or the kind of error.",
            ["kind", "verb", "outcome"],
        )


class Metrics(ProgramMetrics):
    def __init__(self) -> None:
        super().__init__("operator")
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.reconcile_seconds = histogram(
            "nodedevice_operator_reconcile_duration_seconds",
            "Duration of one reconcile of one node, writes included.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
        )
        self.change_to_node_seconds = histogram(
            "nodedevice_operator_change_to_node_seconds",
            "Time from a change of a NodeDevice to the write of its Node.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0),
        )
        self.waiting_nodes = gauge("nodedevice_operator_waiting_nodes", "Nodes that wait to be reconciled.")
        self.failing_nodes = gauge(
            "nodedevice_operator_failing_nodes",
            "Nodes whose last reconcile failed; they are retried with growing delays.",
        )
        self.reconcile_failures = counter(
            "nodedevice_operator_reconcile_failures_total", "Reconciles of a node that failed and are retried."
        )
        self.drift_repairs = counter(
            "nodedevice_operator_drift_repairs_total",
            "Foreign changes of advertised capacity that were undone.",
            ["cause"],
        )
        for cause in ("changed", "zeroed", "removed"):
            self.drift_repairs.labels(cause=cause)
        self.events_lost = counter(
            "nodedevice_operator_events_lost_total", "Kubernetes Events that could not be posted."
        )
        self.agents = gauge(
            "nodedevice_operator_agents",
            "Nodes with NodeDevices, by the state of their agent; withdrawn: silent for so long that free devices are not offered.",
            ["state"],
        )
        self.agent_outage = gauge(
            "nodedevice_operator_agents_silent_together",
            "Agents that fell silent together with many others, which is taken for an outage; nothing of theirs is withdrawn.",
        )
        self.policy_names = gauge(
            "nodedevice_operator_required_plugins_names",
            "Resource names in the policy that makes pods wait for their node's agent; 0 if it is incomplete, or off.",
        )
        self.leader = gauge("nodedevice_operator_leader", "1 while this process may write.")

    def watch(self, cache: Cache) -> None:
        self.registry.register(InventoryCollector(cache))
