"""What is told of an agent that fell silent, or is back: on its NodeDevices, once, when their condition changes.

What is stored decides, so that a restart, or another operator, tells nothing twice. Of many that fell silent together nothing is
told here: that is one Event, about them all. An agent that just came is no return; it had no Lease (LeaseMissing) until then, while
one that is gone has run out (LeaseExpired).
"""

from collections.abc import Iterator, Mapping

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.conditions.conditions import Answer
from nodedevice_operator.events.transitions import NORMAL, WARNING, Event, about_node_device
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# Of what Advertised says: the Node does not show the free devices, whether their agent is back or not.
_NOT_OFFERED = frozenset({Reason.FREE_WITHDRAWN, Reason.WRITE_REFUSED, Reason.UPDATE_REFUSED})


def agent_events(record: NodeDeviceRecord, answers: Mapping[str, Answer]) -> Iterator[Event]:
    """Events that tell how `answers`, just written, differ from what is stored in `record` about its agent."""
    agent, advertised = record.conditions.get(Condition.AGENT_READY), record.conditions.get(Condition.ADVERTISED)
    if agent is None or advertised is None:
        return
    about, where = about_node_device(record), f"{record.resource} on {record.node}"
    now = answers[Condition.AGENT_READY]
    was_withdrawn = advertised.reason == Reason.FREE_WITHDRAWN
    if agent.status == "True" and now.reason == Reason.LEASE_EXPIRED:
        yield Event(about, WARNING, now.reason, f"{where}: {now.message}")
    if now.status == "True" and agent.status != "True" and (agent.reason == Reason.LEASE_EXPIRED or was_withdrawn):
        is_shown = answers[Condition.ADVERTISED].reason not in _NOT_OFFERED
        back = "; its free devices are offered again" if was_withdrawn and is_shown else ""
        yield Event(about, NORMAL, Reason.LEASE_RENEWED, f"{where}: {now.message} again{back}")
    if answers[Condition.ADVERTISED].reason == Reason.FREE_WITHDRAWN and not was_withdrawn:
        free = "1 free device is" if record.available == 1 else f"{record.available} free devices are"
        numbers = f"{free} offered no more, what pods hold stays ({record.allocated})"
        message = f"{where}: {numbers}; all are back when the agent is"
        yield Event(about, WARNING, Reason.FREE_WITHDRAWN, message)
