"""Which extended resources a Node should show, and what to write so that it does.

advertised = allocated + reserved + available, in capacity and allocatable alike. All names of a Node that are ours go into one
server-side apply under our own field manager; a name left out of it leaves the Node. So nothing here may be asked before
every NodeDevice of the Node is known. Where the agent has been silent for too long, its free devices are not offered any more;
the name stays, with what pods hold. So it does where the agent says that devices cannot reach containers, and goes with the last.

A name is ours on a Node when it was advertised for this very Node before; a foreign change to it is undone. A name that
somebody set before us, or keeps changing, is left alone. One whose NodeDevice is gone keeps its number for some seconds: its agent
makes the object anew, and the number must not fall under what is in use meanwhile. Source: server-side apply's ownership
rules, measured on nodes/status of Kubernetes 1.37.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.agents.liveness import ALIVE, AgentState
from nodedevice_operator.capacity.desired import Want, advertised, is_injectable, is_withdrawn, want
from nodedevice_operator.capacity.events import capacity_events
from nodedevice_operator.capacity.history import (
    NodeHistory,
    given_up_at,
    history_of,
    retreat,
    retry_at,
    with_conflict,
    with_lost,
    with_repair,
    without_conflict,
)
from nodedevice_operator.capacity.ownership import Claim, Ruling, hold, judge
from nodedevice_operator.events.transitions import Event
from nodedevice_operator.objects.node import NO_RESOURCE, NodeRecord
from nodedevice_operator.objects.nodedevice import Condition, NodeDeviceRecord, is_real

# The Node shows what it is to show: all that can be had, or what is held.
_SHOWN: Final = frozenset({names.Reason.ADVERTISED, names.Reason.FREE_WITHDRAWN, names.Reason.NOT_INJECTABLE})


@dataclass(frozen=True, slots=True)
class Apply:
    """One server-side apply of capacity and allocatable; names that are not in it are taken off the Node."""

    numbers: Mapping[str, int]
    is_forced: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one resource, for its conditions. `conflict_with` names the other writer.

    not_before: when the Node of which that is said was made, in the API's own form.
    """

    is_advertised: bool
    reason: str
    conflict_with: str | None = None
    conflict_reason: str = names.Reason.NO_CONFLICT
    not_before: str = ""


@dataclass(frozen=True, slots=True)
class CapacityDecision:
    """What to do for a Node. `history`, `events` and `repairs` (their causes) count only once `apply` succeeded.

    `look_again_at` is when a conflict is to be tried again or a lost name to be given up, in monotonic seconds.
    """

    apply: Apply | None
    verdicts: Mapping[str, Verdict]
    history: NodeHistory
    events: tuple[Event, ...] = ()
    repairs: tuple[str, ...] = ()
    look_again_at: float | None = None


def decide(
    node: NodeRecord,
    node_devices: Iterable[NodeDeviceRecord],
    before: NodeHistory | None,
    now: float,
    agent: AgentState = ALIVE,
    unguarded: frozenset[str] = frozenset(),
) -> CapacityDecision:
    """Decide what to write into the status of `node`.

    node_devices: every NodeDevice that names this node; never a part of them.
    now: monotonic seconds. agent: whether the node's agent lives.
    unguarded: resources that must not be new on a Node yet, as nothing would make their pods wait for the agent.
    """
    history = history_of(node.uid, before)
    in_order = sorted(filter(is_real, node_devices), key=lambda record: record.resource)
    rulings = [_guarded(_rule(node, record, history, agent, now), unguarded) for record in in_order]
    kept = {ruling.resource: ruling for ruling in rulings if ruling.number is not None}
    shown = frozenset(name for name in node.resources if _is_ours(node, name))
    history = with_lost(history, (shown | history.applied) - {record.resource for record in in_order}, now)
    over = frozenset(name for name in history.lost if now >= given_up_at(history, name))
    waiting = history.lost.keys() - over
    held = (hold(name, node.resources[name], names.Reason.NODE_MISSING) for name in sorted(waiting & shown))
    kept |= {ruling.resource: ruling for ruling in held if ruling.number is not None}
    given_up = shown - kept.keys() - waiting
    apply = _apply(kept, given_up)
    events = tuple(
        event
        for record, ruling in zip(in_order, rulings, strict=True)
        for event in capacity_events(node, record, ruling)
    )
    for ruling in rulings:
        history = _remember(history, ruling, now)
    sent = frozenset(apply.numbers if apply else kept)
    # what the kubelet counts now is its own from here on, whatever was ours before
    parted = given_up | over | {ruling.resource for ruling in rulings if ruling.reason == names.Reason.BY_KUBELET}
    history = replace(
        history, applied=(history.applied - parted) | sent, withdrawn=(history.withdrawn | parted) - kept.keys()
    )
    standing = [history.conflicts[ruling.resource] for ruling in rulings if ruling.conflict is not None]
    waits = [conflict.retry_at for conflict in standing if conflict.retry_at is not None]
    waits += [given_up_at(history, name) for name in waiting]
    return CapacityDecision(
        apply=apply,
        verdicts={ruling.resource: _verdict(node, ruling) for ruling in rulings},
        history=history,
        events=events,
        repairs=tuple(ruling.drift.cause for ruling in rulings if ruling.drift),
        look_again_at=min(waits, default=None),
    )


def was_advertised(node: NodeRecord, record: NodeDeviceRecord) -> bool:
    """There, and by us, by what is stored: what the kubelet counted by itself does not become ours when its agent takes over."""
    stored = _stored(node, record, names.Condition.ADVERTISED)
    return stored is not None and stored.status == "True" and stored.reason != names.Reason.BY_KUBELET


def _rule(node: NodeRecord, record: NodeDeviceRecord, history: NodeHistory, agent: AgentState, now: float) -> Ruling:
    seen = node.resources.get(record.resource, NO_RESOURCE)
    wanted = want(node, record)
    if wanted is Want.HOLD:
        reason = names.Reason.NODE_MISSING if record.owner_uid != node.uid else names.Reason.NOT_ADVERTISED
        return hold(record.resource, seen, reason)
    stored = _stored(node, record, names.Condition.CONFLICT)
    told = stored is not None and stored.status == "True"
    if wanted in (Want.WITHDRAW, Want.LEAVE):
        ended = record.resource in history.conflicts or (told and record.resource not in history.ended)
        return Ruling(record.resource, number=None, reason=_why_left_out(record), has_conflict_ended=ended)
    withdrawn = is_withdrawn(record, agent)
    claim = Claim(
        resource=record.resource,
        number=advertised(record, is_withdrawn=withdrawn or not is_injectable(record)),
        seen=seen,
        was_advertised=was_advertised(node, record),
        told_conflict=stored.reason if told and stored else None,
    )
    ruling = judge(claim, history, now)
    if withdrawn and ruling.number is not None:
        return replace(ruling, reason=names.Reason.FREE_WITHDRAWN)
    if ruling.reason == names.Reason.ADVERTISED and not is_injectable(record):
        return replace(ruling, reason=names.Reason.NOT_INJECTABLE)
    return ruling


def _why_left_out(record: NodeDeviceRecord) -> str:
    if record.runtime == names.RUNTIME_KUBELET:
        return names.Reason.BY_KUBELET
    return names.Reason.ENDPOINT_GONE if record.endpoint == "Gone" else names.Reason.NOT_INJECTABLE


def _guarded(ruling: Ruling, unguarded: frozenset[str]) -> Ruling:
    """What is on the Node already stays: only a new name waits."""
    if ruling.is_new and ruling.resource in unguarded:
        return replace(ruling, number=None, reason=names.Reason.POLICY_PENDING, differs=False, is_new=False)
    return ruling


def _stored(node: NodeRecord, record: NodeDeviceRecord, kind: str) -> Condition | None:
    """A condition of ours as it is stored, if it speaks of this very Node: from before it was made, it is of another one."""
    stored = record.conditions.get(kind)
    return stored if stored is not None and stored.since >= node.made else None


def _is_ours(node: NodeRecord, resource: str) -> bool:
    seen = node.resources[resource]
    return seen.is_capacity_ours or seen.is_allocatable_ours


def _apply(kept: Mapping[str, Ruling], given_up: frozenset[str]) -> Apply | None:
    """The apply that brings the Node to what was ruled; None when it is there already."""
    if not given_up and not any(ruling.differs for ruling in kept.values()):
        return None
    is_forced = any(ruling.needs_force for ruling in kept.values())
    # a name that nobody has yet waits for the next apply, without force: somebody may take it at this very moment
    numbers = {
        name: ruling.number
        for name, ruling in kept.items()
        if ruling.number is not None and not (is_forced and ruling.is_new)
    }
    return Apply(numbers, is_forced)


def _remember(history: NodeHistory, ruling: Ruling, now: float) -> NodeHistory:
    if ruling.has_conflict_ended:
        history = without_conflict(history, ruling.resource)
    if ruling.drift is not None:
        history = with_repair(history, ruling.resource, ruling.drift.writer, now)
    if ruling.conflict is None or ruling.resource in history.conflicts:
        return history
    if not ruling.is_contest:
        return with_conflict(history, ruling.resource, ruling.conflict, None)
    chosen = retreat(history, ruling.resource, now)
    return with_conflict(history, ruling.resource, replace(ruling.conflict, retry_at=retry_at(chosen)), chosen)


def _verdict(node: NodeRecord, ruling: Ruling) -> Verdict:
    if ruling.reason == names.Reason.BY_KUBELET:
        is_shown = node.resources.get(ruling.resource, NO_RESOURCE).capacity is not None
        return Verdict(is_shown, ruling.reason, not_before=node.made)
    if ruling.conflict is None:
        return Verdict(ruling.number is not None and ruling.reason in _SHOWN, ruling.reason, not_before=node.made)
    reason = names.Reason.CHANGED_REPEATEDLY if ruling.is_contest else names.Reason.FOREIGN_OWNER
    return Verdict(False, reason, ruling.conflict.writer, reason, node.made)
