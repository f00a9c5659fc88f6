"""`kubectl nodedevice`: the cluster on one screen, and the objects that need attention."""

from typing import Any, Final

from kubectl_nodedevice.attention import Need
from kubectl_nodedevice.cluster import PodDevice
from kubectl_nodedevice.errors import FINE, NEEDS_YOU
from kubectl_nodedevice.grouping import grouped
from kubectl_nodedevice.output import Cell, Screen, Table
from kubectl_nodedevice.reading import Reader, Unseen
from kubectl_nodedevice.records import camel
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.styles import BAD, BOLD, FAINT, GOOD, HELD, PLAIN, WARN
from kubectl_nodedevice.survey import ResourceLine, Survey, survey

# needs that are printed one by one; -o wide and JSON have all
_MOST_SHOWN: Final = 20


def overview(session: Session) -> int:
    """Return the exit status. Raises CliError."""
    screen = session.screen
    reader = Reader(session.api, screen)
    found = survey(reader, session.namespace)
    if screen.is_for_machines:
        screen.data("Overview", _data(found, reader.unseen))
    else:
        _show(screen, found, reader)
    return NEEDS_YOU if found.needs else FINE


def _show(screen: Screen, found: Survey, reader: Reader) -> None:
    unseen = reader.unseen
    if found.own is None:
        screen.table(_resources(found.lines))
        if not found.lines and not unseen:
            screen.line("No devices: no device plugin has registered with an agent yet.")
    else:
        screen.table(_own(found.own))
    screen.line()
    _show_needs(screen, found.needs if screen.is_wide else grouped(found.needs, reader.now), sees_all=not unseen)
    for each in unseen:
        screen.line(f"Not shown: {each.what}: {each.why}", FAINT)


def _resources(lines: list[ResourceLine]) -> Table:
    columns = ("RESOURCE", "SERVED BY", "NODES", "DEVICES", "FREE", "IN USE", "UNHEALTHY", "CORDONED", "PENDING")
    table = Table(columns, numbers=columns[2:])
    for line in lines:
        table.add(
            line.resource,
            line.server,
            f"{len(line.nodes):,}",
            f"{line.devices:,}",
            _number(line.free, GOOD),
            _number(line.held, HELD),
            _number(line.broken, BAD),
            _number(line.cordoned, WARN),
            "-" if line.waiting is None else _number(line.waiting, WARN),
        )
    return table


def _number(number: int, style: str) -> Cell:
    return Cell(f"{number:,}", style if number else PLAIN)


def _own(own: list[PodDevice]) -> Table:
    """Show devices of the person's pods to a person who may see only these."""
    table = Table(("NAMESPACE", "POD", "NODE", "DEVICES", "HEALTH"))
    for each in own:
        is_healthy = each.health in ("", "Healthy")
        table.add(
            each.meta.namespace,
            each.meta.name,
            each.node,
            each.resources,
            Cell(each.health, GOOD if is_healthy else BAD),
        )
    return table


def _show_needs(screen: Screen, needs: list[Need], *, sees_all: bool) -> None:
    if not needs:
        screen.line("Nothing needs attention." if sees_all else "Nothing that you may see needs attention.", GOOD)
        return
    screen.line("Needs attention:", BOLD)
    shown = needs if screen.is_wide else needs[:_MOST_SHOWN]
    for number, need in enumerate(shown, 1):
        screen.line(f"{number}. {need.text}")
        if need.command:
            screen.command(need.command, indent=len(f"{number}. "))
    if len(needs) > len(shown):
        screen.line(f"… and {len(needs) - len(shown):,} more:")
        screen.command(typed("kubectl", "nodedevice", "-o", "wide"))


def _data(found: Survey, unseen: list[Unseen]) -> dict[str, Any]:
    return {
        "resources": [
            {camel(name): value for name, value in vars(line).items()} | {"nodes": len(line.nodes)}
            for line in found.lines
        ],
        "podDevices": [f"{each.meta.namespace}/{each.meta.name}" for each in found.own or ()],
        "needs": [
            {
                "reason": need.code,
                "message": need.text,
                "since": need.since,
                "command": need.command,
                "about": dict(need.about),
            }
            for need in found.needs
        ],
        "unseen": [{"what": each.what, "reason": each.code, "message": each.why} for each in unseen],
    }
