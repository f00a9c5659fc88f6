"""The extender's Prometheus metrics. Labels are bounded: verbs, outcomes, kinds, resource names of promised parts."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodedevice_operator.informers.store import Stores
from nodedevice_operator.observability.metrics import ProgramMetrics

# A fleet has a handful of resources with parts; any writer of NodeDevices could invent more.
_MOST_RESOURCES: Final = 100


class ExtenderMetrics(ProgramMetrics):
    def __init__(self) -> None:
        super().__init__("extender")
        counter, gauge = self._counter, self._gauge
        requests = counter(
            "nodedevice_extender_requests_total",
            "Requests of kube-scheduler by outcome: ok, no_fit (no node fits, or a bind was refused), later (pods that end are "
            "about to make room), bad (not a valid request), standby (not active), failed.",
            ["verb", "outcome"],
        )
        seconds = self._histogram(
            "nodedevice_extender_request_seconds",
            "Time from the head of a request to its response; for bind including the API server's part.",
            ["verb"],
            buckets=(0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 5.0),
        )
        # a look-up by labels takes longer than a count
        self._requests_of = cache(lambda verb, outcome: requests.labels(verb=verb, outcome=outcome))
        self._seconds_of = cache(lambda verb: seconds.labels(verb=verb))
        self.rejected = counter(
            "nodedevice_extender_rejected_connections_total",
            "Connections closed before a response, by reason: crowded (its address has most connections without a "
            "certificate), late (no certificate within 5 s), handshake (no TLS, or no certificate of the authority), name "
            "(its certificate has no allowed name), busy (each connection has a request).",
            ["reason"],
        )
        self.bind_conflicts = counter(
            "nodedevice_extender_bind_conflicts_total",
            "Binds that were refused because the parts that filter saw were promised to another pod since, or are gone.",
        )
        self.active = gauge("nodedevice_extender_active", "1 while this process serves kube-scheduler; 0 on a standby.")
        self.unseen = gauge("nodedevice_extender_unseen_binds", "Binds that were sent and that no watch has shown yet.")

    def count(self, verb: str, outcome: str, seconds: float) -> None:
        """Count a request. outcome: one of a few words."""
        self._requests_of(verb, outcome).inc()
        self._seconds_of(verb).observe(seconds)

    def watch(self, stores: Stores, promised: Callable[[], Mapping[str, int]]) -> None:
        """Adds gauges of the stores, computed at every scrape. promised: units by resource name."""
        self.registry.register(_FleetCollector(stores, promised))


class _FleetCollector(Collector):
    def __init__(self, stores: Stores, promised: Callable[[], Mapping[str, int]]) -> None:
        self._stores = stores
        self._promised = promised

    def collect(self) -> Iterator[GaugeMetricFamily]:
        objects = GaugeMetricFamily(
            "nodedevice_extender_objects", "Objects that are known: NodeDevices and bound pods.", labels=["kind"]
        )
        for kind, store in self._stores.stores.items():
            objects.add_metric([kind], len(store.by_key))
        yield objects
        parts = GaugeMetricFamily(
            "nodedevice_extender_promised_parts",
            "Units of parts that are promised to pods and not yet in a NodeDevice's allocations.",
            labels=["resource"],
        )
        # another thread serves /metrics
        for resource, units in sorted(dict(self._promised()).items())[:_MOST_RESOURCES]:
            parts.add_metric([resource], units)
        yield parts
