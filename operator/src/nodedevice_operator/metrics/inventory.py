"""Metrics of all NodeDevices together: counted from the cache at every scrape, and stored nowhere.

Sums go by resource and by namespace, which are bounded. A node has series of its own only while it has a problem: in a healthy
fleet 5,000 nodes have no more series than five, and each node's agent reports its own node.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from nodedevice_api import names
from prometheus_client.core import GaugeMetricFamily

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# Any plugin on a node may register a resource name; past this many they are counted together.
MOST_RESOURCES: Final = 100
# Pairs of namespace and resource, those with most devices first; the others are counted together.
MOST_HOLDERS: Final = 500
# Series of each family with a node label. A longer list of nodes with problems is of no use.
MOST_WITH_PROBLEMS: Final = 500
# no resource and no namespace can have this name
OTHER: Final = "(other)"
STATES: Final = ("total", "healthy", "cordoned", "allocated", "releasing", "reserved", "available")


class InventoryCollector:
    """Called by the registry at every scrape."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        records = self._cache.node_devices.values()
        label = _labels(records)
        yield _family(
            "nodedevice_operator_nodedevices",
            "NodeDevices by resource and whether they are ready.",
            ("resource_name", "ready"),
            Counter((label[r.resource], _readiness(r)) for r in records),
        )
        yield _family(
            "nodedevice_operator_devices",
            "Devices of all nodes by resource and state.",
            ("resource_name", "state"),
            _devices(records, label),
        )
        yield _family(
            "nodedevice_operator_allocated_devices",
            "Devices allocated to pods, by the pods' namespace; those that an over-long NodeDevice omits are not counted.",
            ("namespace", "resource_name"),
            _largest(_holders(records, label)),
        )
        conflicts = sum(record.is_condition(names.Condition.CONFLICT, "True") for record in records)
        yield GaugeMetricFamily(
            "nodedevice_operator_conflicts",
            "NodeDevices whose name another field manager owns on the Node.",
            value=conflicts,
        )
        yield from _problems(records, label)


def _problems(records: Iterable[NodeDeviceRecord], label: dict[str, str]) -> Iterator[GaugeMetricFamily]:
    """One series for each node and resource with a problem, and how many were omitted."""
    not_ready: Counter[tuple[str, ...]] = Counter()
    unhealthy: Counter[tuple[str, ...]] = Counter()
    for record in records:
        name = label[record.resource]
        ready = record.conditions.get(names.Condition.READY)
        if ready is not None and ready.status != "True":
            not_ready[record.node, name, ready.reason] = 1
        if record.total > record.healthy:
            unhealthy[record.node, name] += record.total - record.healthy
    yield _family(
        "nodedevice_operator_not_ready",
        "1 for each NodeDevice that is not Ready; reason is the first problem. Bounded: see omitted_series.",
        ("node", "resource_name", "reason"),
        _first(not_ready),
    )
    yield _family(
        "nodedevice_operator_unhealthy_devices",
        "Devices that are not healthy, on each node that has any. Bounded: see omitted_series.",
        ("node", "resource_name"),
        _first(unhealthy),
    )
    omitted = sum(max(0, len(series) - MOST_WITH_PROBLEMS) for series in (not_ready, unhealthy))
    yield GaugeMetricFamily(
        "nodedevice_operator_omitted_series", "Series by node that were omitted as too many.", value=omitted
    )


def _labels(records: Iterable[NodeDeviceRecord]) -> dict[str, str]:
    resources = sorted({record.resource for record in records})
    return {name: name if place < MOST_RESOURCES else OTHER for place, name in enumerate(resources)}


def _readiness(record: NodeDeviceRecord) -> str:
    ready = record.conditions.get(names.Condition.READY)
    return ready.status if ready else "Unknown"


def _devices(records: Iterable[NodeDeviceRecord], label: dict[str, str]) -> Counter[tuple[str, ...]]:
    devices: Counter[tuple[str, ...]] = Counter()
    for record in records:
        for state in STATES:
            devices[label[record.resource], state] += getattr(record, state)
    return devices


def _holders(records: Iterable[NodeDeviceRecord], label: dict[str, str]) -> Counter[tuple[str, ...]]:
    held: Counter[tuple[str, ...]] = Counter()
    for record in records:
        for allocation in record.allocations:
            if not allocation.is_releasing:
                held[allocation.namespace, label[record.resource]] += len(allocation.device_ids) + allocation.omitted
    return held


def _largest(held: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The pairs with most devices; those of the others are counted by resource."""
    ordered = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    kept: Counter[tuple[str, ...]] = Counter(dict(ordered[:MOST_HOLDERS]))
    for (_, name), number in ordered[MOST_HOLDERS:]:
        kept[OTHER, name] += number
    return kept


def _first(series: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """As many as allowed, by name, so that a node with a lasting problem does not come and go with the others."""
    return Counter(dict(sorted(series.items())[:MOST_WITH_PROBLEMS]))


def _family(name: str, sentence: str, labels: tuple[str, ...], counts: Counter[tuple[str, ...]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, sentence, labels=labels)
    for key, number in sorted(counts.items()):
        family.add_metric(list(key), number)
    return family
