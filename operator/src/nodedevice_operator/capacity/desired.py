"""What a NodeDevice asks of its Node: to be advertised or not, and with how many devices.

One NodeDevice at a time, by what its agent says. Whose the name is on that Node, and so whether it gets what it asks for, is not
known here.
"""

from enum import Enum

from nodedevice_api import names

from nodedevice_operator.agents.liveness import AgentState, as_told
from nodedevice_operator.capacity.contradictions import believed_available
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord


class Want(Enum):
    """What a NodeDevice asks of its Node."""

    ADVERTISE = "advertise"
    WITHDRAW = "withdraw"
    LEAVE = "leave"  # the kubelet of that node counts the resource itself
    HOLD = "hold"  # nothing is known that would justify a change


def advertised(record: NodeDeviceRecord, *, is_withdrawn: bool = False) -> int:
    """How many devices the scheduler may count on: those that pods it still counts hold or wait for, and those that are free.

    Without the awaited ones the number would be less than what is bound, and a kubelet fails for good what it admits then.
    is_withdrawn: the agent that would hand out the free ones is gone, as far as anybody can tell.
    """
    in_use = record.allocated + record.reserved
    return in_use if is_withdrawn else in_use + believed_available(record)


def is_withdrawn(record: NodeDeviceRecord, agent: AgentState) -> bool:
    """Whether its free devices are not offered, as its agent is silent: now, or since before we looked."""
    told = record.conditions.get(names.Condition.ADVERTISED)
    was_withdrawn = told is not None and told.reason == names.Reason.FREE_WITHDRAWN
    return as_told(agent, was_withdrawn=was_withdrawn).is_withdrawn


def want(node: NodeRecord, record: NodeDeviceRecord) -> Want:
    """What `record` asks of `node`. Of another Node, or without a word from its agent: leave things as they are."""
    if record.owner_uid != node.uid or not record.has_status:
        return Want.HOLD
    if record.runtime == names.RUNTIME_KUBELET:
        return Want.LEAVE
    is_gone = record.endpoint == "Gone" or not is_injectable(record)
    is_in_use = record.allocated + record.reserved > 0
    return Want.WITHDRAW if is_gone and not is_in_use else Want.ADVERTISE


def is_injectable(record: NodeDeviceRecord) -> bool:
    """Unknown is no reason to withdraw: nobody may be meant to put devices into containers there."""
    return not record.is_condition(names.Condition.INJECTABLE, "False")
