"""`kubectl nodedevice devices`: prints a line for each device."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

import click
from nodedevice_kube.interning import intern

from kubectl_nodedevice.cluster import Device, NodeDevice
from kubectl_nodedevice.device_state import (
    BROKEN,
    CORDONED,
    FREE,
    HELD_BY_POD,
    MISSING,
    NO_PLUGIN,
    PARTLY_FREE,
    RELEASING,
    TAINTED,
    UNKNOWN,
    Holder,
    State,
    cordons_of,
    everybody_of,
    held_words,
    holders_of,
    state_of,
)
from kubectl_nodedevice.errors import FINE
from kubectl_nodedevice.output import Cell, Row, Screen, Table
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Command, current
from kubectl_nodedevice.styles import WARN
from kubectl_nodedevice.suggestions import NO_PLUGIN_YET, verify_exists
from kubectl_nodedevice.text import age

_COLUMNS = ("NODE", "RESOURCE", "DEVICE", "STATE", "USED BY", "SINCE")
_WIDE = ("MODEL", "NUMA", "SERVED BY")
# values of --state, and the codes that they stand for
STATES: Final[Mapping[str, frozenset[str]]] = {
    "free": frozenset({FREE, PARTLY_FREE}),
    "in-use": frozenset({HELD_BY_POD, RELEASING}),
    "unhealthy": frozenset({BROKEN, MISSING, NO_PLUGIN}),
    "cordoned": frozenset({CORDONED, TAINTED}),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A device, or a number of devices that the NodeDevice omits."""

    found: NodeDevice
    device: Device
    state: State
    holders: tuple[Holder, ...] = ()


def _held_since(line: Line) -> str:
    return next((each.allocation.since for each in line.holders if each.allocation.since), "") or line.state.since


# values of --sort-by
_SORTS: Final[Mapping[str, Callable[[Line], Sequence[str]]]] = {
    "node": lambda line: (),
    "resource": lambda line: (line.found.resource,),
    "state": lambda line: line.state.codes,
    "since": lambda line: (_held_since(line) or "~",),
    "pod": lambda line: [each.pod for each in line.holders] or ["~"],
}


@click.command(cls=Command)
@click.option("--node", default="", metavar="NAME", help="Devices of this node alone.")
@click.option("--resource", default="", metavar="NAME", help="Devices of this resource alone, such as vendor.com/gpu.")
@click.option("--state", type=click.Choice([*STATES]), default=None, help="Devices in this state alone.")
@click.option(
    "-l", "--selector", default="", metavar="LABELS", help="Devices of nodes with these labels, such as zone=a."
)
@click.option("--sort-by", type=click.Choice([*_SORTS]), default="node", help="Default: node.")
@click.pass_context
def devices(context: click.Context, node: str, resource: str, state: str | None, selector: str, sort_by: str) -> int:
    """A line per device: its state, the pod that uses it, since when. States: free, in use, cordoned, unhealthy."""
    session = current(context)
    reader = Reader(session.api, session.screen)
    wanted = reader.nodes_with(selector) if selector else None
    rest = (each for each in reader.each_node_device(node, resource) if wanted is None or each.node in wanted)
    first = next(rest, None)
    if first is None and (node or resource):
        verify_exists(reader, node, resource)
    found = itertools.chain([first] if first else [], rest)
    codes = STATES[state] if state else frozenset()

    def lines(each: NodeDevice) -> Iterator[Line]:
        return (line for line in lines_of(each, reader.now) if not codes or not codes.isdisjoint(line.state.codes))

    if session.screen.is_for_machines:
        items = (data_of(line) for each in found for line in lines(each))
        session.screen.data("DeviceList", {"items": items})
    else:
        _show(session.screen, found, lines, reader, _SORTS[sort_by], state, selector)
    return FINE


def lines_of(found: NodeDevice, now: datetime) -> Iterator[Line]:
    """Yield a line for each listed device, and one for all that the NodeDevice omits."""
    holders, everybody = holders_of(found), everybody_of(found)
    for device in found.devices:
        state = state_of(found, device, holders.get(device.id, ()), now)
        yield Line(found, device, state, tuple(everybody.get(device.id, ())))
    if found.devices_omitted:
        # The agent lists unhealthy, used and cordoned devices first.
        is_running = found.endpoint.state in ("Running", "")
        state = State((FREE,), "free") if is_running else State((UNKNOWN,), "not listed")
        yield Line(found, Device(f"({found.devices_omitted:,} more)"), state)


def _show(
    screen: Screen,
    found: Iterable[NodeDevice],
    lines: Callable[[NodeDevice], Iterator[Line]],
    reader: Reader,
    key: Callable[[Line], Sequence[str]],
    state: str | None,
    selector: str,
) -> None:
    """Make rows while objects are read, then sort them by `key`, node and resource."""
    rows: list[tuple[Sequence[str], str, str, Row]] = []
    has_devices = False
    silent: dict[str, str] = {}
    for each in found:
        has_devices = True
        rows += [(key(line), each.node, each.resource, _row(screen, line, reader.now)) for line in lines(each)]
        agent = each.condition("AgentReady")
        if agent.status not in ("True", ""):
            silent.setdefault(each.node, agent.since)
    rows.sort(key=lambda each: each[:3])
    table = Table(_COLUMNS + (_WIDE if screen.is_wide else ()), [row for *_, row in rows])
    if not table.rows:
        with_labels = f"no node with the labels {selector} has any" if selector else NO_PLUGIN_YET
        without = f": none is {state}" if has_devices and state else "" if has_devices else f": {with_labels}"
        screen.line(f"No devices{without}.")
        return
    screen.table(table)
    _show_stale(screen, silent, reader.now)


def _row(screen: Screen, line: Line, now: datetime) -> Row:
    held = [each.allocation.since for each in line.holders if each.allocation.since and not each.is_admin]
    since = held[0] if held else line.state.since
    cells = (
        line.found.node,
        line.found.resource,
        line.device.id,
        _cell(line.state.text, line.state.style),
        held_words(line.holders),
        intern(age(since, now) or "-"),
    )
    return (*cells, *_wide(line)) if screen.is_wide else cells


@cache
def _cell(text: str, style: str) -> Cell:
    """Cached, as many devices have the same state."""
    return Cell(text, style)


def _wide(line: Line) -> tuple[str, str, str]:
    attributes = line.device.attributes
    model = next((attributes[key] for key in ("model", "productName", "product") if key in attributes), "-")
    return model, ",".join(map(str, line.device.numa_nodes)) or "-", line.found.served_by or "-"


def _show_stale(screen: Screen, silent: Mapping[str, str], now: datetime) -> None:
    """Name nodes with a silent agent, whose state is outdated. silent: since when, by node."""
    for node, since in silent.items():
        ago = age(since, now)
        screen.line(f"Outdated ({ago or 'since an unknown time'}): {node}, whose agent is silent.", WARN)


def data_of(line: Line) -> dict[str, Any]:
    found, device = line.found, line.device
    return {
        "node": found.node,
        "resource": found.resource,
        "nodeDevice": found.name,
        "servedBy": found.served_by,
        "id": device.id,
        "states": list(line.state.codes),
        "state": line.state.text,
        "since": line.state.since,
        "reason": device.reason,
        "message": device.message,
        "attributes": dict(device.attributes),
        "numaNodes": list(device.numa_nodes),
        "cordons": [
            {"id": each.id, "by": each.by, "reason": each.reason, "at": each.at}
            for each in cordons_of(found, device.id)
        ],
        "parts": asdict(device.parts) if device.parts else None,
        "holders": [
            {
                "namespace": each.allocation.namespace,
                "pod": each.allocation.pod,
                "podUID": each.allocation.pod_uid,
                "container": each.allocation.container,
                "parts": each.parts,
                "since": each.allocation.since,
                "claim": each.allocation.claim.name if each.allocation.claim else "",
                "adminAccess": each.is_admin,
                "releasing": each.allocation.releasing,
            }
            for each in line.holders
        ],
    }
