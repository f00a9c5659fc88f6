"""`kubectl nodedevice nodes`: prints a line for each node, with a block for each of its devices."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import click
from nodedevice_kube.api_errors import ApiError

from kubectl_nodedevice.api import NODE_DEVICES
from kubectl_nodedevice.errors import FINE, UsageProblem
from kubectl_nodedevice.output import Cell, Screen, Table
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Command, current
from kubectl_nodedevice.styles import FAINT, GOOD, PLAIN
from kubectl_nodedevice.suggestions import NO_PLUGIN_YET, verify_exists
from kubectl_nodedevice.summaries import Summary, summaries_of

# blocks of one resource; larger numbers are drawn in proportion
_MOST_BLOCKS: Final = 16
_FREE, _HELD, _BROKEN, _OTHER = "□■✗▨"
_IN_ASCII: Final = str.maketrans("□■✗▨", ".#x/")
# between two readings of --watch, and at least so many times the duration of one
_WATCH_SECONDS, _WATCH_RATIO = 2.0, 20.0


class Line(NamedTuple):
    """A node with its resources, sorted by name. free: devices of all of them."""

    node: str
    resources: Sequence[Summary]
    free: int


@click.command(cls=Command)
@click.option("--resource", default="", metavar="NAME", help="Devices of this resource alone, such as vendor.com/gpu.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Nodes with these labels, such as zone=a.")
@click.option("-w", "--watch", is_flag=True, help="Then print each node that changes.")
@click.pass_context
def nodes(context: click.Context, resource: str, selector: str, watch: bool) -> int:
    """A line per node: its free devices, and a block for each device. Nodes with free devices come first."""
    session = current(context)
    screen = session.screen
    if watch and screen.is_for_machines:
        raise UsageProblem("--watch prints lines for people", "leave out --watch, or -o json and -o yaml")
    reader = Reader(session.api, screen)
    lines = read(reader, resource, selector)
    if not lines and resource:
        verify_exists(reader, "", resource)
    if screen.is_for_machines:
        screen.data("NodeList", {"items": [_data(each) for each in lines]})
        return FINE
    _show(screen, lines, selector)
    is_away = False
    while watch:
        time.sleep(_WATCH_SECONDS)
        began, known = time.monotonic(), {each.node: each for each in lines}
        try:
            lines = read(reader, resource, selector)
        except ApiError as exc:
            if not exc.is_temporary:
                raise
            if not is_away:
                screen.note(f"{exc.problem}; the watch goes on when that is over")
            is_away = True
            continue
        is_away = False
        for each in lines:
            if known.get(each.node) != each:
                screen.line(f"{each.node}  {each.free:,} free  {_blocks_of(each, screen)}")
        for node in known.keys() - {each.node for each in lines}:
            screen.line(f"{node}  has no devices any more")
        time.sleep(max(0.0, _WATCH_RATIO * (time.monotonic() - began) - _WATCH_SECONDS))
    return FINE


def read(reader: Reader, resource: str, selector: str) -> list[Line]:
    """Read the rows of NodeDevices; nodes with free devices come first. Raises ApiError."""
    wanted = reader.nodes_with(selector) if selector else None
    by_node: dict[str, list[Summary]] = {}
    for row in summaries_of(reader.rows(NODE_DEVICES)):
        if resource in ("", row.resource) and (wanted is None or row.node in wanted):
            by_node.setdefault(row.node, []).append(row)
    found = [
        Line(node, sorted(of, key=lambda each: each.resource), sum(each.available for each in of))
        for node, of in by_node.items()
    ]
    return sorted(found, key=lambda each: (each.free == 0, each.node))


def blocks(row: Summary) -> str:
    """Return one block for each device, or as many in proportion; at least one of each kind that there is.

    A device that is unhealthy and in use is drawn as unhealthy.
    """
    return _drawn(row.total, row.healthy, row.allocated, row.available)


# most nodes have the same few numbers
@lru_cache(1024)
def _drawn(devices: int, healthy: int, allocated: int, free: int) -> str:
    broken = max(devices - healthy, 0)
    held = min(allocated, max(devices - broken - free, 0))
    numbers = {_HELD: held, _FREE: free, _BROKEN: broken, _OTHER: max(devices - broken - free - held, 0)}
    total = sum(numbers.values())
    if total > _MOST_BLOCKS:
        numbers = {kind: max(1, number * _MOST_BLOCKS // total) for kind, number in numbers.items() if number}
    return "".join(kind * number for kind, number in numbers.items())


def _show(screen: Screen, lines: Sequence[Line], selector: str) -> None:
    if not lines:
        without = f"no node with the labels {selector} has any" if selector else NO_PLUGIN_YET
        screen.line(f"No devices: {without}.")
        return
    table = Table(("NODE", "FREE", "DEVICES"), numbers=("FREE",))
    for each in lines:
        table.add(each.node, Cell(f"{each.free:,}", GOOD if each.free else PLAIN), _blocks_of(each, screen))
    screen.table(table)
    screen.line(
        _in_terminal(screen, f"{_FREE} free  {_HELD} in use  {_BROKEN} unhealthy  {_OTHER} cordoned or reserved"), FAINT
    )


def _blocks_of(line: Line, screen: Screen) -> str:
    return _in_terminal(screen, "  ".join(_words(line.resources)))


def _words(rows: Iterable[Summary]) -> Iterator[str]:
    for row in rows:
        notes = [f"not ready: {row.reason}"] if row.is_unready else []
        notes += [f"{row.waiting} pending"] if row.waiting else []
        words = f" ({', '.join(notes)})" if notes else ""
        yield f"{row.resource} {blocks(row)} {row.available:,}/{row.total:,}{words}"


def _in_terminal(screen: Screen, text: str) -> str:
    """Return the text with letters for blocks if the terminal lacks them."""
    try:
        text.encode(screen.out.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_IN_ASCII)
    return text


def _data(line: Line) -> Mapping[str, Any]:
    return {
        "node": line.node,
        "free": line.free,
        "resources": [
            {
                "name": each.resource,
                "servedBy": each.served_by,
                "total": each.total,
                "free": each.available,
                "inUse": each.allocated,
                "unhealthy": each.total - each.healthy,
                "cordoned": each.cordoned,
                "pending": each.waiting,
                "ready": each.ready,
                "reason": each.reason,
            }
            for each in line.resources
        ],
    }
