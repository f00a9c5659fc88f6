"""The status of a NodeDeviceConfig, from the agents' reports. They are not trusted: counted, and cut to a bounded length."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from nodedevice_api.names import ConfigCondition, ConfigReason
from nodedevice_common.decoding import Undecodable, decode

MOST_REFUSALS: Final = 8
LONGEST_REFUSAL: Final = 512
_MOST_TAKEN: Final = 3
_LONGEST_PLACE: Final = 200
# how many refusing nodes the message names
_MOST_NODES: Final = 3


class _Report(msgspec.Struct):
    generation: int = 0
    refusal: str = ""
    lost: dict[str, str] = {}
    unmatched: list[str] | None = []
    replaces: list[str] = []


# by the configuration's name, what an agent reports of it
Reports = Mapping[str, _Report]


def read_reports(text: str) -> Reports:
    """Decodes the annotation of a Lease; empty if it is invalid."""
    try:
        return decode(text, dict[str, _Report])
    except Undecodable:
        return {}


@dataclass(frozen=True, slots=True)
class ConfigStatus:
    """Numbers of nodes. refusals: sentence, nodes and one of them. conditions: status, reason and message by type."""

    generation: int
    selected: int = 0
    accepted: int = 0
    refused: int = 0
    refusals: tuple[tuple[str, int, str], ...] = ()
    conditions: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)


def config_status(name: str, generation: int, by_node: Mapping[str, Reports]) -> ConfigStatus:
    own = {node: reports[name] for node, reports in sorted(by_node.items()) if name in reports}
    current = {node: report for node, report in own.items() if report.generation == generation}
    refusing = {node: report.refusal[:LONGEST_REFUSAL] for node, report in current.items() if report.refusal}
    examples = {sentence: node for node, sentence in reversed(refusing.items())}
    counts = Counter(refusing.values())
    frequent = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_REFUSALS]
    found = ConfigStatus(
        generation,
        len(own),
        len(current) - len(refusing),
        len(refusing),
        tuple((sentence, number, examples[sentence]) for sentence, number in frequent),
    )
    named = [node for node, sentence in refusing.items() if frequent and sentence == frequent[0][0]][:_MOST_NODES]
    conditions = {
        ConfigCondition.ACCEPTED: _accepted(found, named, sorted({n for r in current.values() for n in r.replaces})),
        ConfigCondition.CONFLICT: _conflict(name, own, by_node),
        ConfigCondition.DEVICES_FOUND: _devices_found(found, [r for r in current.values() if not r.refusal]),
    }
    return ConfigStatus(found.generation, found.selected, found.accepted, found.refused, found.refusals, conditions)


def _accepted(found: ConfigStatus, named: Sequence[str], replaced: Sequence[str]) -> tuple[str, str, str]:
    """named: some nodes of the most frequent refusal. replaced: resources that the agents' file names as well."""
    if found.refused:
        more = f" and {found.refused - len(named)} more" if found.refused > len(named) else ""
        return "False", ConfigReason.REFUSED, f"{', '.join(named)}{more}: {found.refusals[0][0]}"
    if not found.selected:
        message = "no agent reports that it selects its node: compare spec.nodeSelector with the labels of the Nodes"
        return "Unknown", ConfigReason.NO_NODES, message
    if found.accepted < found.selected:
        waiting = found.selected - found.accepted
        have = "has" if waiting == 1 else "have"
        message = f"{_nodes(waiting)} of {found.selected} {have} not taken this generation yet"
        return "Unknown", ConfigReason.PENDING, message
    names = ", ".join(name[:_LONGEST_PLACE] for name in replaced[:_MOST_TAKEN]) + (
        ", …" if len(replaced) > _MOST_TAKEN else ""
    )
    instead = f"; takes the place of agents.config.plugins for {names}" if names else ""
    return "True", ConfigReason.TAKEN, f"taken by {_nodes(found.selected)}{instead}"


def _conflict(name: str, own: Mapping[str, _Report], by_node: Mapping[str, Reports]) -> tuple[str, str, str]:
    """Whether two configurations name the same resource: the condition is on both, the winner and the loser."""
    lost = Counter((resource, other) for report in own.values() for resource, other in report.lost.items())
    won = Counter(
        (resource, other)
        for reports in by_node.values()
        for other, report in reports.items()
        for resource, winner in report.lost.items()
        if winner == name
    )
    if lost:
        named = "; ".join(f"{other} has {resource} on {_nodes(n)}" for (resource, other), n in _first(lost))
        return (
            "True",
            ConfigReason.RESOURCE_TAKEN,
            f"{named}: the higher priority has it, then the name that comes first",
        )
    if won:
        named = "; ".join(f"{other} names {resource} on {_nodes(n)}" for (resource, other), n in _first(won))
        return "True", ConfigReason.RESOURCE_WON, f"{named}, and this one has it by its priority or its name"
    return "False", ConfigReason.NO_OTHER, "no other configuration names one of its resources on a node"


def _devices_found(found: ConfigStatus, taken: Sequence[_Report]) -> tuple[str, str, str]:
    """taken: the reports of agents that use it. One node without a device is fine; False only if no node has one."""
    if not taken:
        reason = ConfigReason.PENDING if found.selected else ConfigReason.NO_NODES
        return "Unknown", reason, "no agent has taken it"
    known = [report.unmatched for report in taken if report.unmatched is not None]
    nowhere = [place for place in known[0] if all(place in each for each in known)] if known else []
    if len(known) + found.refused < found.selected:
        return "Unknown", ConfigReason.PENDING, "not all agents have scanned for its devices yet"
    if not nowhere:
        return "True", ConfigReason.FOUND, "each group of device files has a device on some node"
    named = ", ".join(place[:_LONGEST_PLACE] for place in nowhere[:_MOST_TAKEN])
    more = f" and {len(nowhere) - _MOST_TAKEN} more" if len(nowhere) > _MOST_TAKEN else ""
    remedy = "connect the device, or correct the path or the selection"
    return "False", ConfigReason.NO_MATCH, f"no node has a device of {named}{more}: {remedy}"


def _first(counts: Counter[tuple[str, str]]) -> list[tuple[tuple[str, str], int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_TAKEN]


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


# Reasons without an Event: the change is under way, or needs no attention.
_QUIET: Final = frozenset({ConfigReason.PENDING, ConfigReason.NO_NODES, ConfigReason.RESOURCE_WON, ConfigReason.FOUND})
_BAD: Final = frozenset({ConfigReason.REFUSED, ConfigReason.RESOURCE_TAKEN, ConfigReason.NO_MATCH})


def results(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Type, reason and message of an Event for each condition whose reason changed to a result. Conditions are as stored."""
    reasons = {each.get("type"): each.get("reason") for each in before}
    for each in now:
        reason = each["reason"]
        if reason not in _QUIET and reason != reasons.get(each["type"], ConfigReason.NO_OTHER):
            yield "Warning" if reason in _BAD else "Normal", reason, each["message"]


def to_json(wanted: ConfigStatus, stored: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The status for the API; equal to the stored one if nothing has changed. now: for conditions whose status changes."""
    return {
        "observedGeneration": wanted.generation,
        "nodes": {"selected": wanted.selected, "accepted": wanted.accepted, "refused": wanted.refused},
        "refusals": [{"message": m or "refused", "nodes": n, "example": node} for m, n, node in wanted.refusals],
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": _since(stored, kind, status) or now,
                "observedGeneration": wanted.generation,
            }
            for kind, (status, reason, message) in sorted(wanted.conditions.items())
        ],
    }


# The states of a configuration.
STATES: Final = ("accepted", "refused", "conflict", "pending", "unused")


def state_of(generation: int, stored: Mapping[str, Any]) -> str:
    """One of STATES, by the stored status: refused goes before conflict (another configuration won one of its resources)."""
    if stored.get("observedGeneration") != generation:
        return "pending"
    conditions = stored.get("conditions")
    reasons = (
        {each.get("reason") for each in conditions if isinstance(each, dict)} if isinstance(conditions, list) else ()
    )
    for reason, state in (
        (ConfigReason.REFUSED, "refused"),
        (ConfigReason.RESOURCE_TAKEN, "conflict"),
        (ConfigReason.NO_NODES, "unused"),
        (ConfigReason.TAKEN, "accepted"),
    ):
        if reason in reasons:
            return state
    return "pending"


def _since(stored: Mapping[str, Any], kind: str, status: str) -> str:
    """When the stored condition got that status; empty if its status differs."""
    conditions = stored.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and (each.get("type"), each.get("status")) == (kind, status):
            return str(each.get("lastTransitionTime", ""))
    return ""
