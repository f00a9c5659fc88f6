"""What Prometheus may ask the operator. Labels are bounded: kinds, verbs, causes, and the first resource names."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import prometheus_client
from nodedevice_api import names
from prometheus_client.core import GaugeMetricFamily

from nodedevice_operator.core.records import NodeDeviceRecord
from nodedevice_operator.edges.cache import Cache

# Resource names come from whatever registers on a node; past this many they are counted together.
_MOST_RESOURCES: Final = 100
_OTHER: Final = "other"
_STATES: Final = ("total", "healthy", "cordoned", "allocated", "releasing", "available")


class Metrics:
    """Counters and histograms of the operator; gauges are taken from the cache when they are asked for."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.reconcile_seconds = prometheus_client.Histogram(
            "nodedevice_operator_reconcile_duration_seconds",
            "How long one look at one node took, writes included.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self.registry,
        )
        self.reconcile_failures = prometheus_client.Counter(
            "nodedevice_operator_reconcile_failures_total",
            "Looks at a node that failed and are repeated.",
            registry=self.registry,
        )
        self.writes = prometheus_client.Counter(
            "nodedevice_operator_api_writes_total",
            "Write requests sent to the API server.",
            ["kind", "verb"],
            registry=self.registry,
        )
        self.drift_repairs = prometheus_client.Counter(
            "nodedevice_operator_drift_repairs_total",
            "Foreign changes of advertised capacity that were put right.",
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
            "Nodes with NodeDevices, by their agent; withdrawn: silent for so long that free devices are not offered.",
            ["state"],
            registry=self.registry,
        )
        self.agent_outage = prometheus_client.Gauge(
            "nodedevice_operator_agents_silent_together",
            "Agents that fell silent together with too many others to be believed gone; nothing of theirs is withdrawn.",
            registry=self.registry,
        )
        self.policy_names = prometheus_client.Gauge(
            "nodedevice_operator_required_plugins_names",
            "Resource names in the policy that makes pods wait for their node's agent; 0 where it is not whole, or not kept.",
            registry=self.registry,
        )
        self.leader = prometheus_client.Gauge(
            "nodedevice_operator_leader",
            "1 while this process may write.",
            registry=self.registry,
        )

    def watch(self, cache: Cache) -> None:
        """Count what is in `cache` at every scrape."""
        self.registry.register(_CacheCollector(cache))


class _CacheCollector:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        records = self._cache.node_devices.values()
        label = _labels(records)
        yield _by_resource(
            "nodedevice_operator_nodedevices",
            "NodeDevices by resource and whether they are ready.",
            ("resource", "ready"),
            Counter((label[r.resource], _readiness(r)) for r in records),
        )
        devices: Counter[tuple[str, str]] = Counter()
        for record in records:
            for state in _STATES:
                devices[label[record.resource], state] += getattr(record, state)
        yield _by_resource(
            "nodedevice_operator_devices", "Devices by resource and state.", ("resource", "state"), devices
        )
        conflicts = sum(record.is_condition(names.Condition.CONFLICT, "True") for record in records)
        yield GaugeMetricFamily(
            "nodedevice_operator_conflicts", "NodeDevices whose name somebody else holds on the Node.", value=conflicts
        )


def _labels(records: Iterable[NodeDeviceRecord]) -> dict[str, str]:
    resources = sorted({record.resource for record in records})
    return {name: name if place < _MOST_RESOURCES else _OTHER for place, name in enumerate(resources)}


def _readiness(record: NodeDeviceRecord) -> str:
    ready = record.conditions.get(names.Condition.READY)
    return ready.status if ready else "Unknown"


def _by_resource(
    name: str, sentence: str, labels: tuple[str, str], counts: Counter[tuple[str, str]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, sentence, labels=labels)
    for key, number in sorted(counts.items()):
        family.add_metric(list(key), number)
    return family
