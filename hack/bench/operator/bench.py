"""`make bench-operator`: the operator beside fleets of growing size, as a table, build/bench-operator.json and plots.

BENCH_NODES: the sizes, such as 500,1000. BENCH_SECONDS: how long changes are made. BENCH_RESOURCES: of a
node, 2 or 3. What is measured how is in docs/performance.md;
with the sizes and the time that it speaks of, the plots there are drawn again.
"""

import asyncio
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pygal
from pygal.style import LightSolarizedStyle
from rich.console import Console
from rich.table import Table

from hack.bench.operator.api import Refused
from hack.bench.operator.run import RATE, Measured, measure
from hack.bench.results import Result, judged, show, worst, write
from hack.cluster.errors import ClusterError


@dataclass(frozen=True)
class Chart:
    """One drawing. lines: points (nodes, value) by what they show."""

    file: str
    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def draw(charts: Sequence[Chart], folder: Path) -> None:
    """Write each chart into the folder under its name."""
    folder.mkdir(exist_ok=True)
    for chart in charts:
        # no scripts: a page of documentation shows pictures
        drawn = pygal.XY(
            title=f"{chart.title} ({chart.unit})",
            x_title="nodes",
            style=LightSolarizedStyle,
            js=(),
            legend_at_bottom=True,
            width=640,
            height=360,
            dots_size=3,
            include_x_axis=True,
            range=(0, 1.1 * max(value for line in chart.lines.values() for _, value in line)),
        )
        for label, points in chart.lines.items():
            drawn.add(label, list(points))
        drawn.x_labels = sorted({nodes for line in chart.lines.values() for nodes, _ in line})
        (folder / chart.file).write_bytes(drawn.render())


_ROOT = Path(__file__).parents[3]
_BUILD = _ROOT / "build"
_SIZES = "500,1000,2000,5000"
_SECONDS = "60"


def results(measured: Measured) -> dict[str, Result]:
    """Held against the goals of the design."""
    m, name = measured, f"_{measured.nodes}"
    changes = len(m.changed)
    p50, p99 = statistics.median(m.changed), worst(m.changed)
    patches = m.change_writes.get("nodes/status patch", 0) / changes
    idle, at_start = sum(m.idle_writes.values()), sum(m.restart_writes.values())
    return {
        f"operator_cold{name}": judged(m.cold_seconds, m.cold_seconds, "s", 60, 1),
        f"operator_restart{name}": judged(m.restart_seconds, m.restart_seconds, "s", 60, 1),
        f"operator_restart_writes{name}": judged(at_start, at_start, "writes", 0, 1),
        # what one in a hundred waits for is what the goal is about
        f"operator_flip{name}": Result(
            round(p50, 5), round(p99, 5), "s", 0.3, p99 <= 0.3 and not m.superseded, changes
        ),
        f"operator_rss{name}": judged(m.rss_mib, m.peak_rss_mib, "MiB", 200, 1),
        f"operator_writes_per_change{name}": judged(patches, patches, "patches", 1, changes),
        f"operator_idle_writes{name}": judged(idle, idle, "writes", 0, 1),
        f"operator_takeover_crash{name}": _each(m.crashes, 5),
        f"operator_takeover_clean{name}": _each(m.clean_ends, 1),
    }


def facts(measured: Measured) -> dict[str, str]:
    """What has no goal, and explains the rest."""
    m = measured
    changes = len(m.changed) + m.superseded
    return {
        "fleet made": f"{m.made_seconds:.0f} s",
        "all written after a cold start": f"{m.settled_seconds:.0f} s",
        "writes at a cold start": _counted(m.settled_writes),
        "writes at a restart": _counted(m.restart_writes),
        "change seen by a plain watch, p50 p99": _two(m.shown),
        "from then until the Node shows it, p50 p99": _two(m.own),
        "a bare write of a Node until a watch shows it, p50 p99": _two(m.bare),
        "the operator's way over the bare write, p50": f"{statistics.median(m.own) / statistics.median(m.bare):.2f}",
        "changes that came too late to be seen": str(m.superseded),
        "writes per change": _counted({kind: number / changes for kind, number in m.change_writes.items()}),
        "operator's CPU per change": f"{1000 * m.change_cpu_seconds / changes:.1f} ms",
        "cores while changing": _counted(m.change_cores),
        "cores without changes": _counted(m.idle_cores),
        "most memory ever": f"{m.peak_rss_mib:.0f} MiB",
    }


def charts(all_measured: list[Measured]) -> list[Chart]:
    """How it grows with the fleet."""
    lines = {
        "operator-start.svg": {
            "nothing advertised yet": [(m.nodes, m.cold_seconds) for m in all_measured],
            "all of it right already": [(m.nodes, m.restart_seconds) for m in all_measured],
        },
        "operator-memory.svg": {
            "at the end": [(m.nodes, m.rss_mib) for m in all_measured],
            "at most": [(m.nodes, m.peak_rss_mib) for m in all_measured],
        },
        "operator-changes.svg": {
            "change to Node, p50": [(m.nodes, 1000 * statistics.median(m.changed)) for m in all_measured],
            "change to Node, p99": [(m.nodes, 1000 * worst(m.changed)) for m in all_measured],
            "bare write, p99": [(m.nodes, 1000 * worst(m.bare)) for m in all_measured],
        },
    }
    titles = {
        "operator-start.svg": ("Start until all capacity is right", "s"),
        "operator-memory.svg": ("Memory of the operator", "MiB"),
        "operator-changes.svg": (f"{RATE:.0f} changes a second", "ms"),
    }
    return [Chart(file, *titles[file], shown) for file, shown in lines.items()]


def run(sizes: list[int], seconds: float) -> Iterator[Measured]:
    """One fleet after the other. One that could not be measured to its end is reported, and left out."""
    for nodes in sizes:
        folder = Path(tempfile.mkdtemp(prefix="nodedevice-bench-"))
        try:
            yield asyncio.run(measure(nodes, seconds, folder, _progress))
        except (TimeoutError, EOFError, Refused, ClusterError) as exc:
            _progress(f"{nodes} nodes: not measured: {str(exc) or type(exc).__name__}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes, seconds = os.environ.get("BENCH_NODES", _SIZES), os.environ.get("BENCH_SECONDS", _SECONDS)
    try:
        wanted, for_seconds = [int(size) for size in sizes.split(",")], float(seconds)
    except ValueError as exc:
        _progress(
            f"BENCH_NODES={sizes} BENCH_SECONDS={seconds}: {exc}; give numbers, as in BENCH_NODES=500,1000 BENCH_SECONDS=10"
        )
        return 2
    all_measured: list[Measured] = []
    held: dict[str, Result] = {}
    for measured in run(wanted, for_seconds):
        all_measured.append(measured)
        held |= results(measured)
        # after each: who ends it early keeps what there is
        write(held, _BUILD / "bench-operator.json")
    if not all_measured:
        return 1
    show(held)
    _show_facts(all_measured)
    is_whole = len(all_measured) == len(wanted)
    plots = _ROOT / "docs" if is_whole and (sizes, seconds) == (_SIZES, _SECONDS) else _BUILD
    draw(charts(all_measured), plots)
    print(f"written to build/bench-operator.json; plots to {plots.relative_to(_ROOT)}/operator-*.svg")
    missed = [name for name, measured in held.items() if not measured.ok]
    print(f"missed: {', '.join(missed)}" if missed else "every budget is met")
    # a slow machine is news, not an error; a fleet without figures is one
    return 0 if is_whole else 1


def _show_facts(all_measured: list[Measured]) -> None:
    table = Table(title="and what explains it", show_lines=True)
    table.add_column("nodes")
    columns = [facts(measured) for measured in all_measured]
    for measured in all_measured:
        table.add_column(f"{measured.nodes:,}")
    for what in columns[0]:
        table.add_row(what, *(column[what] for column in columns))
    Console(width=160).print(table)


def _each(seconds: list[float], goal: float) -> Result:
    """Of a few rounds, each of which is to be in time."""
    slowest = max(seconds)
    return Result(round(statistics.median(seconds), 5), round(slowest, 5), "s", goal, slowest <= goal, len(seconds))


def _two(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} {1000 * worst(seconds):.0f} ms"


def _counted(numbers: object) -> str:
    assert isinstance(numbers, dict)
    return ", ".join(f"{number:,.4g} {what}" for what, number in sorted(numbers.items())) or "none"


def _progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
