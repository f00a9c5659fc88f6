"""What holds of the resources of a Node whose write is refused: told of those that the Node does not show as it should.

UpdateRefused is a name that was advertised there before, and WriteRefused one that never was: whose the name is must not be lost
with the status that says so, as a later operator takes back only what was ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.capacity.decide import CapacityDecision, Verdict, was_advertised
from nodedevice_operator.objects.node import NO_RESOURCE, NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# Reasons of an Advertised that is False, of names that are ours: only such a name is taken back after a contest.
_OURS: Final = frozenset({Reason.UPDATE_REFUSED, Reason.CHANGED_REPEATEDLY})


def verdicts_when_refused(
    node: NodeRecord, records: Iterable[NodeDeviceRecord], decision: CapacityDecision
) -> Mapping[str, Verdict | None]:
    """What is to be told of each resource, as `decision` cannot be carried out; None: what is told of it already."""
    by_resource = {record.resource: record for record in records}
    return {
        resource: _verdict(node, by_resource[resource], verdict, decision)
        for resource, verdict in decision.verdicts.items()
    }


def as_before_refusal(record: NodeDeviceRecord) -> NodeDeviceRecord:
    """`record` as it is decided about: a name that was advertised is no less ours while it is not, refused or contested."""
    told = record.conditions.get(Condition.ADVERTISED)
    if told is None or told.reason not in _OURS:
        return record
    return replace(record, conditions={**record.conditions, Condition.ADVERTISED: replace(told, status="True")})


def _verdict(
    node: NodeRecord, record: NodeDeviceRecord, verdict: Verdict, decision: CapacityDecision
) -> Verdict | None:
    if verdict.conflict_with is not None or not _differs(node, record.resource, verdict, decision):
        return verdict
    told = record.conditions.get(Condition.ADVERTISED)
    if verdict.reason == Reason.FREE_WITHDRAWN and told is not None and told.reason == Reason.FREE_WITHDRAWN:
        # that its free devices were withdrawn is known by this alone to whoever comes after us
        return None
    reason = Reason.UPDATE_REFUSED if _was_advertised(node, record) else Reason.WRITE_REFUSED
    return replace(verdict, is_advertised=False, reason=reason)


def _differs(node: NodeRecord, resource: str, verdict: Verdict, decision: CapacityDecision) -> bool:
    """Whether the Node shows another number than it would after the writes; whose the number is does not matter here."""
    if decision.apply is None:
        return False
    seen = node.resources.get(resource, NO_RESOURCE)
    number = decision.apply.numbers.get(resource)
    if number is not None:
        return (seen.capacity, seen.allocatable) != (number, number)
    # left out of this apply: a new name comes with the next one, any other is to leave the Node
    is_to_come = verdict.is_advertised and verdict.reason != Reason.BY_KUBELET
    return is_to_come or seen.is_capacity_ours or seen.is_allocatable_ours


def _was_advertised(node: NodeRecord, record: NodeDeviceRecord) -> bool:
    seen = node.resources.get(record.resource, NO_RESOURCE)
    is_told = was_advertised(node, as_before_refusal(record))
    return is_told or seen.is_capacity_ours or seen.is_allocatable_ours
