"""The operator's conditions whole, for each reason that there is. `GOLDEN=write make unit` writes the file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from nodedevice_api.names import Condition, Reason
from nodedevice_operator.capacity.decide import ResourceStatus
from nodedevice_operator.leases.agent_liveness import ALIVE, MISSING, AgentState, expired
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.reconcile import conditions

from tests.fakes.operator.operator_model import node_device
from tests.unit import golden

FOLDER: Final = Path(__file__).with_name("texts")
_LONGEST: Final = 256 * 1024
_GOOD: Final = ResourceStatus(True, Reason.ADVERTISED)
_REJECTION: Final = "the server said: no quota left at 10:00"


def _without(kind: str) -> NodeDeviceRecord:
    record = node_device()
    return replace(record, conditions={name: each for name, each in record.conditions.items() if name != kind})


def _with(**reported: tuple[str, str, str]) -> NodeDeviceRecord:
    record = node_device()
    changed = {kind: StoredCondition(*each, "then", 1) for kind, each in reported.items()}
    return replace(record, conditions={**record.conditions, **changed})


def _cases() -> Iterator[tuple[str, NodeDeviceRecord, ResourceStatus, AgentState]]:
    record = node_device()
    for reason in conditions.SHOWN:
        yield f"shown, {reason}", record, ResourceStatus(True, reason), ALIVE
    yield "shown, of another reason", record, ResourceStatus(True, "Odd"), ALIVE
    yield "shown, free ones withdrawn", record, ResourceStatus(False, Reason.FREE_WITHDRAWN), MISSING
    for reason in (*conditions.NOT_SHOWN, "Odd"):
        yield f"not shown, {reason}", record, ResourceStatus(False, reason), ALIVE
    for reason in sorted(conditions.REJECTED):
        yield f"rejected, {reason}", record, ResourceStatus(False, reason), ALIVE
    for reason in (Reason.FOREIGN_OWNER, Reason.CHANGED_REPEATEDLY):
        for writer in ("kubelet", "someone"):
            yield f"conflict, {reason} by {writer}", record, ResourceStatus(False, reason, writer, reason), ALIVE
    for reason in (Reason.ENDPOINT_GONE, Reason.NOT_CONFIGURED, Reason.PLACE_TAKEN):
        yield f"conflict, {reason}", record, ResourceStatus(False, reason, "someone", Reason.FOREIGN_OWNER), ALIVE
    yield "parts", replace(record, largest_available=3), _GOOD, ALIVE
    yield "parts, not advertised", replace(record, largest_available=3), ResourceStatus(True, Reason.BY_KUBELET), ALIVE
    yield "nri", replace(record, delivery="nri"), _GOOD, ALIVE
    yield "all cordoned", replace(record, total=2, cordoned=2, cordoned_by={"a": "bob"}), _GOOD, ALIVE
    yield "an agent that is missing", record, _GOOD, MISSING
    yield "an agent that is silent", record, _GOOD, expired(60)
    yield "nothing reported", _without(Condition.REGISTERED), _GOOD, ALIVE
    for kind in (Condition.REGISTERED, Condition.HEALTHY, Condition.INJECTABLE, Condition.WATCHES_CURRENT):
        yield f"{kind} is false", _with(**{kind: ("False", "Why", f"words of {kind}")}), _GOOD, ALIVE
    for reason in sorted(conditions.NOTHING_HEALTHY):
        yield f"nothing healthy, {reason}", _with(Healthy=("False", reason, "words")), _GOOD, ALIVE


def _lines() -> Iterator[str]:
    for name, record, status, agent in _cases():
        for lacks_policies in (False, True) if name == "nri" else (False,):
            found = conditions.desired(record, status, agent, lacks_policies=lacks_policies, rejection=_REJECTION)
            yield f"# {name}{', without policies' if lacks_policies else ''}"
            yield from (f"{kind} {each.status} {each.reason}: {each.message}" for kind, each in found.items())
            yield ""


def test_conditions_are_these() -> None:
    golden.check(FOLDER, "conditions", "\n".join(_lines()).encode(), "txt", _LONGEST)


def test_a_rejection_is_cut_and_stays_while_only_its_numbers_change() -> None:
    status = ResourceStatus(False, Reason.WRITE_REFUSED)
    for length, end in ((conditions.LONGEST_REJECTION, "x"), (conditions.LONGEST_REJECTION + 1, "x...")):
        found = conditions.desired(node_device(), status, ALIVE, rejection="x" * length)[Condition.ADVERTISED]
        assert found.message.endswith(f": {'x' * (conditions.LONGEST_REJECTION - 1)}{end}")
    first = conditions.desired(node_device(), status, ALIVE, rejection="from 10.0.0.1:5 at 10:00")
    message = first[Condition.ADVERTISED].message
    kept = _with(Advertised=("False", Reason.WRITE_REFUSED, message))
    for rejection, is_kept in (("from 10.0.0.1:7 at 10:01", True), ("from 10.0.0.1:7 in 10:01", False)):
        again = conditions.desired(kept, status, ALIVE, rejection=rejection)[Condition.ADVERTISED]
        assert (again.message == message) is is_kept
