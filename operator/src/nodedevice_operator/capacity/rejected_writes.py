"""The status of each resource of a Node whose write the API server rejects: of those that the Node does not show as it should.

UpdateRefused is a name that was advertised there before, and WriteRefused one that never was: the ownership of a name must not be
lost with the status that stores it, as a later operator takes back only what was ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.capacity.decide import CapacityDecision, ResourceStatus, was_advertised
from nodedevice_operator.objects.node import NO_RESOURCE, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# Reasons of an Advertised that is False, of names that are ours: only such a name is taken back after contention.
_OURS: Final = frozenset({Reason.UPDATE_REFUSED, Reason.CHANGED_REPEATEDLY})


def statuses_when_rejected(
    node: NodeRecord, records: Iterable[NodeDeviceRecord], decision: CapacityDecision
) -> Mapping[str, ResourceStatus | None]:
    """The status of each resource while `decision` cannot be carried out; None: what is stored of it holds."""
    by_resource = {record.resource: record for record in records}
    return {
        resource: _status(node, by_resource[resource], status, decision)
        for resource, status in decision.statuses.items()
    }


def as_before_rejection(record: NodeDeviceRecord) -> NodeDeviceRecord:
    """`record` as it is decided on: a name that was advertised is still ours while its write is rejected or it is contended."""
    stored = record.conditions.get(Condition.ADVERTISED)
    if stored is None or stored.reason not in _OURS:
        return record
    return replace(record, conditions={**record.conditions, Condition.ADVERTISED: replace(stored, status="True")})


def _status(
    node: NodeRecord, record: NodeDeviceRecord, status: ResourceStatus, decision: CapacityDecision
) -> ResourceStatus | None:
    if status.conflict_with is not None or not _differs(node, record.resource, status, decision):
        return status
    stored = record.conditions.get(Condition.ADVERTISED)
    if status.reason == Reason.FREE_WITHDRAWN and stored is not None and stored.reason == Reason.FREE_WITHDRAWN:
        # only this condition tells a later operator that the free devices were withdrawn
        return None
    reason = Reason.UPDATE_REFUSED if _was_advertised(node, record) else Reason.WRITE_REFUSED
    return replace(status, is_advertised=False, reason=reason)


def _differs(node: NodeRecord, resource: str, status: ResourceStatus, decision: CapacityDecision) -> bool:
    """Whether the Node shows another number than it would after the writes, whoever owns it."""
    if decision.apply is None:
        return False
    seen = node.resources.get(resource, NO_RESOURCE)
    number = decision.apply.numbers.get(resource)
    if number is not None:
        return (seen.capacity, seen.allocatable) != (number, number)
    # left out of this apply: a new name comes with the next one, any other is removed from the Node
    is_to_come = status.is_advertised and status.reason != Reason.BY_KUBELET
    return is_to_come or seen.is_capacity_ours or seen.is_allocatable_ours


def _was_advertised(node: NodeRecord, record: NodeDeviceRecord) -> bool:
    seen = node.resources.get(record.resource, NO_RESOURCE)
    is_stored = was_advertised(node, as_before_rejection(record))
    return is_stored or seen.is_capacity_ours or seen.is_allocatable_ours
