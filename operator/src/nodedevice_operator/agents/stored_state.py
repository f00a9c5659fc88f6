"""What the stored conditions of NodeDevices say of agents whose Lease was never seen: it holds until a list of the Leases.

Until the first list that concerns all agents. An agent stored as LeaseMissing never had a Lease; one whose Lease is gone has
expired.
"""

from collections.abc import Iterable
from typing import Final

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.agents.liveness import AgentState, StoredAgent
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_EXPIRED: Final = frozenset({Reason.LEASE_EXPIRED, Reason.LEASES_EXPIRED_TOGETHER})


def stored_state(records: Iterable[NodeDeviceRecord]) -> AgentState | None:
    """State of a node's agent as its NodeDevices store it; a silent one wins. None where nothing is stored.

    It does not say whether free devices are withdrawn: that is stored for each resource by itself.
    """
    found: AgentState | None = None
    for record in records:
        stored = record.conditions.get(Condition.AGENT_READY)
        if stored is not None and (found is None or stored.status != "True"):
            found = AgentState(stored.status, stored.reason, stored.message)
    return found


def stored_agents(records: Iterable[NodeDeviceRecord]) -> dict[str, StoredAgent]:
    """What is stored of agents that have, or had, a Lease, by node; silence wins."""
    found: dict[str, StoredAgent] = {}
    for record in records:
        stored, advertised = record.conditions.get(Condition.AGENT_READY), record.conditions.get(Condition.ADVERTISED)
        if stored is None:
            continue
        if stored.status == "True":
            found.setdefault(record.node, StoredAgent(is_alive=True))
        elif stored.reason in _EXPIRED:
            is_withdrawn = advertised is not None and advertised.reason == Reason.FREE_WITHDRAWN
            before = found.get(record.node)
            found[record.node] = StoredAgent(False, is_withdrawn or (before is not None and before.is_withdrawn))
    return found
