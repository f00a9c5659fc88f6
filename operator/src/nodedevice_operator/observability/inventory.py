"""Metrics of all NodeDevices together: counted from the cache at every scrape, and stored nowhere.

Sums go by resource and by namespace, which are bounded. A node has series of its own only while it has a problem: in a healthy
fleet 5,000 nodes have no more series than five, and each node's agent reports its own node.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, TypeAlias

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
Series: TypeAlias = Counter[tuple[str, ...]]
STATES: Final = ("total", "healthy", "cordoned", "allocated", "releasing", "reserved", "available")
_STATES_OF_SERVED: Final = ("total", "healthy", "allocated", "available")
_SERVED_BY: Final = names.ONLY_SHOWN | {names.SERVED_BY_NODEDEVICE}


# Name after nodedevice_operator_; help and labels.
_FAMILIES: Final = {
    "nodedevices": ("NodeDevices by resource and whether they are ready.", ("resource_name", "ready")),
    "devices": ("Devices of all nodes by resource and state.", ("resource_name", "state")),
    "served_devices": (
        "Devices of all nodes by who gives them out, resource and state: nodedevice, kubelet or dra, as agents say.",
        ("served_by", "resource_name", "state"),
    ),
    "allocated_devices": (
        "Devices allocated to pods, by the pods' namespace; devices that an over-long NodeDevice omits are not counted.",
        ("namespace", "resource_name"),
    ),
    "conflicts": ("NodeDevices whose name another field manager owns on the Node.", ()),
    "conflicts_by_node": (
        "The same, on each node that has any. Bounded: see omitted_series.",
        ("node", "resource_name"),
    ),
    "cordons": (
        "Entries in spec.cordonedDevices, on each node that has any. Bounded: see omitted_series.",
        ("node", "resource_name"),
    ),
    "not_ready": (
        "1 for each NodeDevice that is not Ready and should be; reason is the first problem. Bounded: see omitted_series.",
        ("node", "resource_name", "reason"),
    ),
    "unhealthy_devices": (
        "Devices that are not healthy, on each node that has any. Bounded: see omitted_series.",
        ("node", "resource_name"),
    ),
}
_BY_NODE: Final = tuple(suffix for suffix, (_, labels) in _FAMILIES.items() if "node" in labels)


class InventoryCollector:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = _counts(self._cache.node_devices.values())
        for suffix, (sentence, labels) in _FAMILIES.items():
            yield _family(f"nodedevice_operator_{suffix}", sentence, labels, _limited(suffix, counts[suffix]))
        omitted = sum(max(0, len(counts[suffix]) - MOST_WITH_PROBLEMS) for suffix in _BY_NODE)
        yield GaugeMetricFamily(
            "nodedevice_operator_omitted_series", "Series by node that were omitted as too many.", value=omitted
        )


def _counts(records: list[NodeDeviceRecord]) -> dict[str, Series]:
    """By family and labels."""
    counts: dict[str, Series] = {suffix: Counter() for suffix in _FAMILIES}
    counts["conflicts"][()] = 0
    # a driver may have many pools of any name: resources that pods name come first
    of_dra = {record.resource for record in records if record.served_by == names.SERVED_BY_DRA}
    resources = [*sorted({record.resource for record in records} - of_dra), *sorted(of_dra)]
    names_of = {name: name if place < MOST_RESOURCES else OTHER for place, name in enumerate(resources)}
    for record in records:
        _add(counts, record, names_of[record.resource])
    return counts


def _add(counts: dict[str, Series], record: NodeDeviceRecord, name: str) -> None:
    ready = record.conditions.get(names.Condition.READY)
    counts["nodedevices"][name, ready.status if ready else "Unknown"] += 1
    if ready is not None and ready.status != "True" and not record.is_unready_by_intent:
        counts["not_ready"][record.node, name, ready.reason] = 1
    if record.broken:
        counts["unhealthy_devices"][record.node, name] += record.broken
    for state in STATES:
        counts["devices"][name, state] += getattr(record, state)
    for namespace, number in _held(record):
        counts["allocated_devices"][namespace, name] += number
    # an agent could report any word
    served_by = record.served_by if record.served_by in _SERVED_BY else OTHER
    for state in _STATES_OF_SERVED:
        counts["served_devices"][served_by, name, state] += getattr(record, state)
    if record.is_condition(names.Condition.CONFLICT, "True"):
        counts["conflicts"][()] += 1
        counts["conflicts_by_node"][record.node, name] += 1
    if record.cordons and not record.is_only_shown:
        counts["cordons"][record.node, name] += record.cordons


def _held(record: NodeDeviceRecord) -> Iterator[tuple[str, int]]:
    """Devices by namespace. With DRA pods share a device, and a container may have one through several claims: it counts once."""
    current = [allocation for allocation in record.allocations if not allocation.is_releasing]
    if record.served_by != names.SERVED_BY_DRA:
        yield from ((allocation.namespace, allocation.count) for allocation in current)
        return
    devices: dict[str, set[str]] = defaultdict(set)
    for allocation in current:
        devices[allocation.namespace].update(allocation.device_ids)
    yield from ((namespace, len(ids)) for namespace, ids in devices.items())
    yield from ((allocation.namespace, allocation.omitted) for allocation in current if allocation.omitted)


def _largest(held: Series) -> Series:
    """The pairs with most devices; all others are counted by resource."""
    ordered = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    kept: Series = Counter(dict(ordered[:MOST_HOLDERS]))
    for (_, name), number in ordered[MOST_HOLDERS:]:
        kept[OTHER, name] += number
    return kept


def _first(series: Series) -> Series:
    """As many as allowed, by name, so that a node with a lasting problem does not come and go with the others."""
    return Counter(dict(sorted(series.items())[:MOST_WITH_PROBLEMS]))


def _limited(suffix: str, series: Series) -> Series:
    if suffix == "allocated_devices":
        return _largest(series)
    return _first(series) if suffix in _BY_NODE else series


def _family(name: str, sentence: str, labels: tuple[str, ...], counts: Series) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, sentence, labels=labels)
    for key, number in sorted(counts.items()):
        family.add_metric(list(key), number)
    return family
