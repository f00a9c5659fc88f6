"""Chooses which changes of the advertised numbers become routine Events: only those that the operator's own write made."""

from collections.abc import Iterator, Mapping, Set

from nodedevice_api import names

from nodedevice_operator.capacity.ownership import OwnershipDecision
from nodedevice_operator.objects.node import NO_RESOURCE, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.aggregates import NumberAggregate
from nodedevice_operator.observability.events import Event, about_node, about_node_device, advertised


def number_events(
    node: NodeRecord,
    records: Mapping[str, NodeDeviceRecord],
    decisions: Mapping[str, OwnershipDecision],
    numbers: Mapping[str, int],
    given_up: Set[str],
) -> Iterator[Event]:
    """Events about a write of `numbers`, which removes the names in `given_up`. records, decisions: by resource."""
    for resource in sorted(numbers.keys() | given_up):
        record, decision = records.get(resource), decisions.get(resource)
        before = None if decision and decision.is_new else node.resources.get(resource, NO_RESOURCE).capacity
        after = numbers.get(resource)
        if before == after or (decision and (decision.drift or decision.has_conflict_ended)):
            continue
        if record and record.largest_available is not None and before is not None and after is not None:
            # of parts of one device it changes with every pod
            continue
        why = decision.reason if decision and decision.reason != names.Reason.ADVERTISED else ""
        about = about_node_device(record) if record else about_node(node)
        yield advertised(about, NumberAggregate(resource, node.name, before, after, why))
