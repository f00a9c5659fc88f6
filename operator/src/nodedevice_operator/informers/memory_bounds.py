"""How much is kept of the NodeDevices of one node, whatever its token has written. Decides; stores nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.objects.nodedevice import LONGEST_TEXT, NodeDeviceRecord

# Whoever has the token of one node may write objects of any size and number: of a node so many bytes are kept, about, beside a few
# hundred bytes for each object. An agent lists 256 KiB at most for each resource.
MOST_BYTES_OF_NODE: Final = 16 * 1024 * 1024


def within_bounds(of_node: Sequence[NodeDeviceRecord]) -> Iterator[NodeDeviceRecord]:
    """What to keep of those NodeDevices of one node that take too much memory in all: the newest go without their lists."""
    excess = sum(record.weight for record in of_node) - MOST_BYTES_OF_NODE
    if excess <= 0:
        return
    for record in sorted((record for record in of_node if record.weight), key=lambda record: record.age, reverse=True):
        yield without_lists(record)
        excess -= record.weight
        if excess <= 0:
            return


def without_lists(record: NodeDeviceRecord) -> NodeDeviceRecord:
    """Its numbers and the state of its conditions, as if the agent had omitted all else."""
    return replace(
        record,
        devices={},
        listed=(),
        devices_omitted=record.total,
        allocations=(),
        allocations_omitted=record.allocations_omitted + len(record.allocations),
        waiting=(),
        lost_cordons=frozenset(),
        cordoned_ids=frozenset(),
        cordoned_by={},
        conditions={
            kind: replace(value, message=value.message[:LONGEST_TEXT]) if kind in names.AGENT_CONDITIONS else value
            for kind, value in record.conditions.items()
        },
        weight=0,
    )
