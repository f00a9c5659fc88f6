"""What a NodeDevice asks of its Node: whether to be advertised, and with how many devices.

One NodeDevice at a time, by what its agent reports. Who owns the name on that Node, and so whether it is advertised, is decided in
ownership.

A NodeDevice's numbers may contradict its own lists. The API rejects what it can count (see crds/); this is the rest. Truncated
lists prove nothing about what is left out. Devices in use are never taken to be fewer than the number says: capacity must not
fall below what is in use.
"""

from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Final

from nodedevice_api import names

from nodedevice_operator.agents.liveness import AgentState, with_stored_withdrawal
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_MOST_CONTRADICTIONS: Final = 3


class Desired(Enum):
    """What a NodeDevice asks of its Node."""

    ADVERTISE = "advertise"
    WITHDRAW = "withdraw"
    LEAVE = "leave"  # the kubelet of that node counts the resource itself
    HOLD = "hold"  # nothing is known that would justify a change


def desired(node: NodeRecord, record: NodeDeviceRecord) -> Desired:
    """What `record` asks of `node`. One of another Node, or without a report of its agent, asks for no change."""
    if record.owner_uid != node.uid or not record.has_status:
        return Desired.HOLD
    if record.runtime == names.RUNTIME_KUBELET:
        return Desired.LEAVE
    is_gone = record.endpoint == "Gone" or not is_injectable(record)
    is_in_use = record.allocated + record.reserved > 0
    return Desired.WITHDRAW if is_gone and not is_in_use else Desired.ADVERTISE


def desired_count(record: NodeDeviceRecord, *, is_withdrawn: bool = False) -> int:
    """How many devices the scheduler may count on: those allocated to or reserved for pods, and those that are free.

    Without the reserved ones the number would be less than what is bound, and a kubelet then fails a pod for good at admission.
    is_withdrawn: the agent that would allocate the free ones is gone, as far as can be known.
    """
    in_use = record.allocated + record.reserved
    return in_use if is_withdrawn else in_use + plausible_available(record)


def is_withdrawn(record: NodeDeviceRecord, agent: AgentState) -> bool:
    """Whether its free devices are not offered because its agent is silent: now, or since before this process."""
    stored = record.conditions.get(names.Condition.ADVERTISED)
    was_withdrawn = stored is not None and stored.reason == names.Reason.FREE_WITHDRAWN
    return with_stored_withdrawal(agent, was_withdrawn=was_withdrawn).is_withdrawn


def is_injectable(record: NodeDeviceRecord) -> bool:
    """Unknown is no reason to withdraw: perhaps nothing injects devices into containers there, on purpose."""
    return not record.is_condition(names.Condition.INJECTABLE, "False")


def plausible_available(record: NodeDeviceRecord) -> int:
    """How many devices are free, as far as the number and the list of devices agree."""
    free = _listed_free(record)
    return record.available if free is None else min(record.available, free)


def contradictions(record: NodeDeviceRecord) -> tuple[str, ...]:
    """The contradictions in a NodeDevice, a few sentences; () where there are none."""
    return tuple(islice(_contradictions(record), _MOST_CONTRADICTIONS))


def _contradictions(record: NodeDeviceRecord) -> Iterator[str]:
    free = _listed_free(record)
    if free is not None and record.available > free:
        yield f"available is {record.available}, but {free} of the devices listed are healthy and not allocated"
    held = {i for allocation in record.allocations if not allocation.is_releasing for i in allocation.device_ids}
    is_whole = not record.allocations_omitted and not any(allocation.omitted for allocation in record.allocations)
    if record.listed and is_whole and record.allocated > len(held):
        yield f"allocated is {record.allocated}, but {len(held)} devices are listed as allocated"
    if record.listed and not record.devices_omitted:
        for device_id in sorted(held - frozenset(record.listed)):
            yield f"{device_id} is allocated, but is not among the devices"
    holders: dict[str, str] = {}
    for allocation in record.allocations:
        for device_id in allocation.device_ids:
            if holders.setdefault(device_id, allocation.pod_uid) != allocation.pod_uid:
                yield f"{device_id} is allocated to two pods, {holders[device_id]} and {allocation.pod_uid}"


def _listed_free(record: NodeDeviceRecord) -> int | None:
    """How many listed devices are healthy and not allocated; None where the list is truncated."""
    if not record.listed or record.devices_omitted:
        return None
    # `devices` holds those that are allocated or unhealthy
    return len(record.listed) - len(record.devices)
