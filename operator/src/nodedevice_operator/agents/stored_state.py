"""What NodeDevices tell of agents whose Lease was never seen: it holds until a look at the Leases says otherwise.

That is of all agents until the first look. One that is told to have no Lease never had one, as one that is gone has run out.
"""

from collections.abc import Iterable
from typing import Final

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.agents.liveness import AgentState, Told
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_EXPIRED: Final = frozenset({Reason.LEASE_EXPIRED, Reason.LEASES_EXPIRED_TOGETHER})


def stored_state(records: Iterable[NodeDeviceRecord]) -> AgentState | None:
    """State of a node's agent as its NodeDevices tell, silence before life; None where nothing is stored.

    Whether free devices are withdrawn is not in it: that is stored too, and each resource's own.
    """
    found: AgentState | None = None
    for record in records:
        stored = record.conditions.get(Condition.AGENT_READY)
        if stored is not None and (found is None or stored.status != "True"):
            found = AgentState(stored.status, stored.reason, stored.message)
    return found


def told_agents(records: Iterable[NodeDeviceRecord]) -> dict[str, Told]:
    """What is stored of agents that have, or had, a Lease, by node; silence before life."""
    found: dict[str, Told] = {}
    for record in records:
        stored, advertised = record.conditions.get(Condition.AGENT_READY), record.conditions.get(Condition.ADVERTISED)
        if stored is None:
            continue
        if stored.status == "True":
            found.setdefault(record.node, Told(is_alive=True))
        elif stored.reason in _EXPIRED:
            is_withdrawn = advertised is not None and advertised.reason == Reason.FREE_WITHDRAWN
            before = found.get(record.node)
            found[record.node] = Told(False, is_withdrawn or (before is not None and before.is_withdrawn))
    return found
