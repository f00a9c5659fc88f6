"""What is told of a name on a Node that others write to: a repair, a conflict, and its end."""

from collections.abc import Iterator

from nodedevice_operator.capacity.ownership import Drift, Ruling
from nodedevice_operator.events.transitions import NORMAL, WARNING, Event, EventReason, about_node, about_node_device
from nodedevice_operator.objects.node import UNKNOWN_WRITER, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord


def capacity_events(node: NodeRecord, record: NodeDeviceRecord, ruling: Ruling) -> Iterator[Event]:
    """Each on the Node and on the NodeDevice: whoever describes one of them finds the whole story there."""
    for kind, reason, message in _told(ruling):
        for about in (about_node(node), about_node_device(record)):
            yield Event(about, kind, reason, message)


def _told(ruling: Ruling) -> Iterator[tuple[str, str, str]]:
    if ruling.has_conflict_ended:
        message = f"{ruling.resource}: nobody else holds this name any more"
        yield NORMAL, EventReason.CAPACITY_CONFLICT_ENDED, message
    if ruling.drift is not None:
        message = f"{ruling.resource}: {_did(ruling.drift)}, put back to {ruling.number}"
        yield WARNING, EventReason.CAPACITY_REPAIRED, message
    if ruling.conflict is not None and ruling.is_conflict_new:
        message = f"{ruling.resource}: {ruling.conflict.writer} {_why(ruling)}"
        yield WARNING, EventReason.CAPACITY_CONFLICT, message


def _did(drift: Drift) -> str:
    # what is not there has no owner: who took it away stands nowhere
    who = "somebody" if drift.writer == UNKNOWN_WRITER else drift.writer
    return f"{who} removed it" if drift.found is None else f"{who} left {drift.found}"


def _why(ruling: Ruling) -> str:
    if ruling.is_contest:
        return "changes what is advertised here again and again; it is left alone for some time, so stop it"
    return "set this name before it was advertised here; it is left alone until the name is out of the Node's status"
