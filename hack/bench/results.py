"""Compares measurements with their goals: as a value, as a table, as JSON."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

PER_SECOND = "/s"
# a ratio that has to reach its goal; other ratios must not exceed theirs
SHARE = "share"
# units of values that have to reach their goal
MORE_IS_BETTER = (PER_SECOND, SHARE)


class Result(msgspec.Struct):
    """value: median, unless its step states otherwise. goal: from the design; None for information. n: measurements.

    p99: 99th percentile. ok: value <= goal; for a unit of MORE_IS_BETTER value >= goal.
    """

    value: float
    p99: float
    unit: str
    goal: float | None
    ok: bool
    n: int


def result(measured: Sequence[float], unit: str, goal: float) -> Result:
    """The result of single measurements."""
    return judged(statistics.median(measured), worst(measured, unit), unit, goal, len(measured))


def information(measured: Sequence[float], unit: str) -> Result:
    """The result of single measurements without a budget."""
    return Result(
        round(statistics.median(measured), 5), round(worst(measured, unit), 5), unit, None, True, len(measured)
    )


def ratio(measured: Sequence[float], compared: Sequence[float], goal: float) -> Result:
    """Median over median and p99 over p99, of measurements that were taken in turn."""
    value = statistics.median(measured) / statistics.median(compared)
    return judged(value, worst(measured) / worst(compared), "ratio", goal, len(measured))


def judged(value: float, p99: float, unit: str, goal: float, n: int) -> Result:
    is_ok = value >= goal if unit in MORE_IS_BETTER else value <= goal
    return Result(round(value, 5), round(p99, 5), unit, goal, is_ok, n)


def worst(measured: Sequence[float], unit: str = "") -> float:
    """The 99th percentile, for a rate the first."""
    percentiles = statistics.quantiles(measured, n=100, method="inclusive")
    return percentiles[0 if unit == PER_SECOND else 98]


def publish(results: Mapping[str, Result], path: Path) -> None:
    """Publish as JSON and as a table. A missed goal is reported, but is not a failure: a slow machine is not an error."""
    write(results, path)
    show(results)
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    print(verdict(results))


def verdict(results: Mapping[str, Result], *, is_whole: bool = True) -> str:
    """A sentence about missed goals. is_whole: no error ended the measurements early."""
    missed = [name for name, measured in results.items() if not measured.ok]
    if missed:
        return f"missed: {', '.join(missed)}"
    return "every budget is met" if is_whole else "ended early; every measured budget is met"


@contextmanager
def publishing(path: Path) -> Iterator[dict[str, Result]]:
    """Rows to fill: published when the block ends, also after an error or Ctrl-C."""
    rows: dict[str, Result] = {}
    try:
        yield rows
    finally:
        if rows:
            publish(rows, path)


def write(results: Mapping[str, Result], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(msgspec.to_builtins(results), indent=2) + "\n")


def show(results: Mapping[str, Result]) -> None:
    table = Table(title="nodedevice against its budgets")
    for column in ("what", "value", "p99", "goal", "unit", "n", "ok"):
        table.add_column(column, justify="left" if column in ("what", "unit", "ok") else "right")
    for name, r in results.items():
        goal = "" if r.goal is None else f"{'≥' if r.unit in MORE_IS_BETTER else '≤'} {r.goal:,g}"
        ok = "" if r.goal is None else "yes" if r.ok else "NO"
        table.add_row(name, _number(r.value), _number(r.p99), goal, r.unit, str(r.n), ok)
    Console(width=110).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"
