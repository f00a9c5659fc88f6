"""`make bench-operator`: the operator with fleets of growing size, as a table, build/bench-operator.json and plots.

BENCH_NODES: the sizes, such as 500,1000. BENCH_SECONDS: duration of the changes. BENCH_RESOURCES: per node, 1 to 3.
BENCH_DRA: additional pools of DRA drivers per node. docs/performance.md describes the method; with the sizes and the
duration named there, its plots are drawn again.
"""

import asyncio
import os
import signal
import statistics
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hack.bench.operator.api import Refused
from hack.bench.operator.measured import Measured, facts, results
from hack.bench.operator.run import RATE, measure
from hack.bench.results import Result, show, verdict, worst, write
from hack.bench.running import bench_folder, show_progress
from tests.cluster.errors import ClusterError


@dataclass(frozen=True)
class Chart:
    """One drawing. lines: points (nodes, value) by label."""

    file: str
    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def draw(charts: Sequence[Chart], folder: Path) -> None:
    """Write each chart into the folder under its name."""
    # imported here: it hooks into all later imports, and Python warns of that
    import pygal
    from pygal.style import LightSolarizedStyle

    folder.mkdir(exist_ok=True)
    for chart in charts:
        # no scripts: pages of documentation show images
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
_INTERRUPTED = "interrupted"
# of a slow machine, or an ended program; other errors are bugs of this benchmark
_EXPECTED = (TimeoutError, EOFError, Refused, ClusterError, OSError)


def charts(all_measured: Sequence[Measured]) -> list[Chart]:
    """Charts of the growth with the fleet."""
    cold = [(m.nodes, m.cold.seconds) for m in all_measured if m.cold is not None]
    restart = [(m.nodes, m.restart.seconds) for m in all_measured if m.restart is not None]
    changes = [(m.nodes, m.changes) for m in all_measured if m.changes is not None and m.changes.changed]
    lines = {
        "operator-start.svg": {"nothing advertised yet": cold, "all of it right already": restart},
        "operator-memory.svg": {
            "at the end": [(m.nodes, m.rss_mib) for m in all_measured if m.rss_mib is not None],
            "at most": [(m.nodes, m.peak_rss_mib) for m in all_measured if m.rss_mib is not None],
        },
        "operator-changes.svg": {
            "change to Node, p50": [(nodes, 1000 * statistics.median(of.changed)) for nodes, of in changes],
            "change to Node, p99": [(nodes, 1000 * worst(of.changed)) for nodes, of in changes],
            "bare write, p99": [(nodes, 1000 * worst(of.bare)) for nodes, of in changes if of.bare],
        },
    }
    titles = {
        "operator-start.svg": ("Start until all capacity is right", "s"),
        "operator-memory.svg": ("Memory of the operator", "MiB"),
        "operator-changes.svg": (f"{RATE:.0f} changes a second", "ms"),
    }
    return [Chart(file, *titles[file], shown) for file, shown in lines.items() if any(shown.values())]


def run(sizes: Sequence[int], seconds: float) -> Iterator[Measured]:
    """Yields the measurements of one fleet after the other; a fleet that ends early includes the cause."""
    for nodes in sizes:
        measured = Measured(nodes)
        try:
            with bench_folder() as folder:
                asyncio.run(measure(measured, seconds, folder, show_progress))
        except KeyboardInterrupt:
            measured.problem = _INTERRUPTED
        except Exception as exc:  # after any error, show the earlier measurements
            measured.problem = str(exc) or type(exc).__name__
            if not isinstance(exc, _EXPECTED):
                traceback.print_exc()
        yield measured
        if measured.problem:
            show_progress(f"{nodes} nodes: ended early: {measured.problem}")
        if measured.problem == _INTERRUPTED:
            return


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes, seconds = os.environ.get("BENCH_NODES", _SIZES), os.environ.get("BENCH_SECONDS", _SECONDS)
    try:
        wanted, for_seconds = [int(size) for size in sizes.split(",")], float(seconds)
    except ValueError as exc:
        show_progress(
            f"BENCH_NODES={sizes} BENCH_SECONDS={seconds}: {exc}; give numbers, as in BENCH_NODES=500,1000 BENCH_SECONDS=10"
        )
        return 2
    all_measured: list[Measured] = []
    held: dict[str, Result] = {}
    for measured in run(wanted, for_seconds):
        all_measured.append(measured)
        held |= results(measured)
        # after each fleet: an interrupted run keeps its results
        write(held, _BUILD / "bench-operator.json")
    show(held)
    _show_facts(all_measured)
    is_whole = len(all_measured) == len(wanted) and not any(measured.problem for measured in all_measured)
    plots = _ROOT / "docs" if is_whole and (sizes, seconds) == (_SIZES, _SECONDS) else _BUILD
    draw(charts(all_measured), plots)
    print(f"written to build/bench-operator.json; plots to {plots.relative_to(_ROOT)}/operator-*.svg")
    print(verdict(held, is_whole=is_whole))
    # a slow machine is not an error; a fleet with missing figures is
    return 0 if is_whole else 1


def _show_facts(all_measured: Sequence[Measured]) -> None:
    table = Table(title="and what explains it", show_lines=True)
    table.add_column("nodes")
    columns = [facts(measured) for measured in all_measured]
    for measured in all_measured:
        table.add_column(f"{measured.nodes:,}")
    for what in dict.fromkeys(what for column in columns for what in column):
        table.add_row(what, *(column.get(what, "") for column in columns))
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())
