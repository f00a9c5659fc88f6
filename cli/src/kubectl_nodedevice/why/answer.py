"""Prints an explanation for people or for programs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.styles import BOLD, FAINT, GOOD
from kubectl_nodedevice.text import age, some
from kubectl_nodedevice.why.explanation import Explanation, Finding, Obstacle
from kubectl_nodedevice.why.reasons.rights import Access
from kubectl_nodedevice.why.reasons.row import line_of

# obstacles of one finding that are printed; JSON has all
_MOST_SHOWN: Final = 3
# whether the reader has that right; None if the API server does not say
Allowed = Callable[[Access], bool | None]


def show(screen: Screen, found: Explanation, allowed: Allowed, now: datetime) -> None:
    if screen.is_for_machines:
        screen.data("Explanation", data(found, allowed))
        return
    screen.line(f"{found.subject} {found.state}", BOLD)
    for number, finding in enumerate(found.findings, 1):
        _show_finding(screen, number, finding, allowed)
    screen.line()
    if not found.findings and found.is_stopped:
        screen.line("Nothing about devices is known to stop it.", GOOD)
    for note in found.notes:
        screen.line(note)
    if found.words:
        since = age(found.words_at, now)
        screen.line(f"The {found.words_by}{f', {since} ago' if since else ''}: {found.words}")
    if found.unread:
        kinds = ", ".join(sorted({each.kind.partition(".")[0] for each in found.unread}))
        roles = ", ".join(sorted({each.role for each in found.unread if each.role}))
        screen.line(f"Not known: {kinds}. You may not read them{f' (roles {roles})' if roles else ''}.", FAINT)


def of_own_cordons(found: Explanation, own_name: Callable[[], str]) -> Explanation:
    """Remove --take-over from commands about the reader's own cordons. own_name: raises CliError if the name is unknown."""
    if not any("cordoned_by" in each.fields for finding in found.findings for each in finding.obstacles):
        return found
    try:
        name = own_name()
    except CliError:
        return found
    return replace(found, findings=tuple(_of_own_cordons(each, name) for each in found.findings))


def _of_own_cordons(finding: Finding, name: str) -> Finding:
    def own(each: Obstacle) -> Obstacle:
        if each.fields.get("cordoned_by") != name:
            return each
        options = each.fields["device_options"].removesuffix(" --take-over")
        return replace(each, fields={**each.fields, "device_options": options})

    return replace(finding, obstacles=tuple(map(own, finding.obstacles)))


def _show_finding(screen: Screen, number: int, finding: Finding, allowed: Allowed) -> None:
    screen.line("")
    screen.line(f"{number}. {finding.sentence}  [{finding.code}]")
    lines = list(_details(finding))
    for line in lines[:_MOST_SHOWN]:
        screen.line(f"   {line}")
    if len(lines) > _MOST_SHOWN:
        screen.line(f"   and so on: {len(lines) - _MOST_SHOWN} more")
    row = finding.row
    screen.line(f"   {row.advice}")
    screen.command(line_of(row, finding.fields), indent=5)
    if allowed(row.line.needs) is False:
        screen.line(f"   You may not run this line; the role {row.line.role} may.", FAINT)


def _details(finding: Finding) -> Iterator[str]:
    """Yield one line for all nodes with the same detail."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for each in finding.obstacles:
        nodes.setdefault((each.detail, each.as_of), []).append(each.node)
    for (detail, as_of), names in nodes.items():
        known = some([each for each in names if each], 5) if finding.of_nodes > 1 else ""
        line = ": ".join(filter(None, [known, detail])) + (f" (as of {as_of})" if as_of else "")
        if line:
            yield line.strip()


def data(found: Explanation, allowed: Allowed) -> Mapping[str, Any]:
    """Return the explanation for JSON. causes: by precedence; `code` is stable across releases."""
    return {
        "subject": found.subject,
        "state": found.state,
        "isStopped": found.is_stopped,
        "causes": [_cause(each, allowed) for each in found.findings],
        "notes": list(found.notes),
        "words": {"by": found.words_by, "message": found.words, "at": found.words_at},
        "unknown": [{"kind": each.kind, "why": each.why, "role": each.role} for each in found.unread],
    }


def _cause(finding: Finding, allowed: Allowed) -> Mapping[str, Any]:
    row = finding.row
    return {
        "code": finding.code,
        "resource": finding.resource,
        "message": finding.sentence,
        "ofNodes": finding.of_nodes,
        "where": [{"node": each.node, "detail": each.detail, "asOf": each.as_of} for each in finding.obstacles],
        "help": {
            "text": row.advice,
            "command": line_of(row, finding.fields),
            "role": str(row.line.role),
            "allowed": allowed(row.line.needs),
        },
    }
