"""The measurements of a fleet, stage by stage: a run that ends early keeps the stages before. Seconds, MiB.

Compares them with the goals of the design as rows of a table; figures without a goal explain the rest.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hack.bench.operator import fleet
from hack.bench.results import Result, judged, ratio, worst

_COLD_SECONDS = 60.0
# the operator's allowance over the API server's time for the same writes
_MOST_OVER_BARE = 1.2
_FLIP_SECONDS = 0.3
_MOST_FLIPS_OVER_BARE = 5.0
_MOST_MIB = 200
# with pools of DRA drivers, up to three a node
_MOST_MIB_WITH_POOLS = 220


@dataclass(frozen=True)
class Start:
    """seconds: from the start of the process until every Node is right."""

    seconds: float


@dataclass(frozen=True)
class Settled:
    """seconds: from the start of the process until all work is done. writes: by kind."""

    seconds: float
    writes: Mapping[str, int]


@dataclass(frozen=True)
class Idle:
    """Without changes. cores: by process, and of the whole machine."""

    writes: Mapping[str, int]
    cores: Mapping[str, float]


@dataclass(frozen=True)
class Changes:
    """Latencies start when a change is sent.

    changed: until the Node shows it. shown: until a plain watch shows the change. own: from then until the Node shows
    it, negative if the operator was faster than that watch. bare: a write of a Node until a watch shows it, without
    the operator. superseded: changes that no Node showed before the next one of the same resource; no list contains
    them.
    """

    superseded: int
    changed: Sequence[float]
    shown: Sequence[float]
    own: Sequence[float]
    bare: Sequence[float]
    cpu_seconds: float
    cores: Mapping[str, float]

    @property
    def count(self) -> int:
        """At least one, to divide by."""
        return max(1, len(self.changed) + self.superseded)


@dataclass
class Measured:
    """bare_seconds: a write of each Node by a plain client, as many side by side as the operator's, before it started.

    crashes, clean_ends: from the end of the leader until a Node shows a change that was sent right after it.
    problem: what ended it before all was measured.
    """

    nodes: int
    made_seconds: float | None = None
    bare_seconds: float | None = None
    cold: Start | None = None
    cold_settled: Settled | None = None
    restart: Start | None = None
    restart_settled: Settled | None = None
    idle: Idle | None = None
    changes: Changes | None = None
    changes_settled: Settled | None = None
    rss_mib: float | None = None
    peak_rss_mib: float = 0.0
    crashes: list[float] = field(default_factory=list)
    clean_ends: list[float] = field(default_factory=list)
    problem: str = ""


def results(m: Measured) -> dict[str, Result]:
    """The rows of all measurements."""
    rows: dict[str, Result] = {}
    if m.cold is not None and m.bare_seconds is not None:
        most = max(_COLD_SECONDS, _MOST_OVER_BARE * m.bare_seconds)
        rows["cold"] = _of(m.cold.seconds, "s", most)
        rows["cold_over_bare"] = _of(m.cold.seconds / m.bare_seconds, "ratio", most / m.bare_seconds)
    if m.restart is not None:
        rows["restart"] = _of(m.restart.seconds, "s", _COLD_SECONDS)
    if m.restart_settled is not None:
        rows["restart_writes"] = _of(sum(m.restart_settled.writes.values()), "writes", 0)
    if m.idle is not None:
        rows["idle_writes"] = _of(sum(m.idle.writes.values()), "writes", 0)
    if m.changes is not None and m.changes.changed:
        rows |= _flips(m.changes)
        if m.changes_settled is not None:
            patches = m.changes_settled.writes.get("nodes/status patch", 0) / len(m.changes.changed)
            rows["writes_per_change"] = judged(patches, patches, "patches", 1, len(m.changes.changed))
    if m.rss_mib is not None:
        rows["rss"] = judged(m.rss_mib, m.peak_rss_mib, "MiB", _MOST_MIB_WITH_POOLS if fleet.POOLS else _MOST_MIB, 1)
    for name, seconds, goal in (("takeover_crash", m.crashes, 5), ("takeover_clean", m.clean_ends, 1)):
        if seconds:
            rows[name] = _each(seconds, goal)
    return {f"operator_{name}_{m.nodes}": row for name, row in rows.items()}


def facts(m: Measured) -> dict[str, str]:
    """Figures without a goal, in words; stages without measurements are left out."""
    shown = {}
    if m.made_seconds is not None:
        shown["fleet made"] = f"{m.made_seconds:.0f} s"
    if m.bare_seconds is not None:
        shown["a bare write of each Node"] = f"{m.bare_seconds:.0f} s"
    if m.cold_settled is not None:
        shown["all written after a cold start"] = f"{m.cold_settled.seconds:.0f} s"
        shown["writes at a cold start"] = _counted(m.cold_settled.writes)
    if m.restart_settled is not None:
        shown["writes at a restart"] = _counted(m.restart_settled.writes)
    if m.idle is not None:
        shown["cores without changes"] = _counted(m.idle.cores)
    if m.changes is not None:
        shown |= _of_changes(m.changes)
        if m.changes_settled is not None:
            writes = {kind: number / m.changes.count for kind, number in m.changes_settled.writes.items()}
            shown["writes per change"] = _counted(writes)
    if m.peak_rss_mib:
        shown["most memory ever"] = f"{m.peak_rss_mib:.0f} MiB"
    if m.problem:
        shown["ended early"] = m.problem
    return shown


def _of_changes(changes: Changes) -> dict[str, str]:
    shown = {
        "change seen by a plain watch, p50 p99": _two(changes.shown),
        "from then until the Node shows it, p50 p99": _two(changes.own),
        "a bare write of a Node until a watch shows it, p50 p99": _two(changes.bare),
        "changes that came too late to be seen": str(changes.superseded),
        "operator's CPU per change": f"{1000 * changes.cpu_seconds / changes.count:.1f} ms",
        "cores while changing": _counted(changes.cores),
    }
    if changes.own and changes.bare:
        over = statistics.median(changes.own) / statistics.median(changes.bare)
        shown["the operator's way over the bare write, p50"] = f"{over:.2f}"
    return shown


def _flips(changes: Changes) -> dict[str, Result]:
    p50, p99 = statistics.median(changes.changed), worst(changes.changed)
    # the goal is about the 99th percentile
    is_ok = p99 <= _FLIP_SECONDS and not changes.superseded
    found = {"flip": Result(round(p50, 5), round(p99, 5), "s", _FLIP_SECONDS, is_ok, len(changes.changed))}
    if changes.bare:
        over = ratio(changes.changed, changes.bare, _MOST_FLIPS_OVER_BARE)
        over.ok = max(over.value, over.p99) <= _MOST_FLIPS_OVER_BARE
        found["flip_over_bare"] = over
    return found


def _of(value: float, unit: str, goal: float) -> Result:
    return judged(value, value, unit, goal, 1)


def _each(seconds: list[float], goal: float) -> Result:
    """The result of a few rounds; each must be in time."""
    slowest = max(seconds)
    return Result(round(statistics.median(seconds), 5), round(slowest, 5), "s", goal, slowest <= goal, len(seconds))


def _two(seconds: Sequence[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} {1000 * worst(seconds):.0f} ms" if seconds else "none"


def _counted(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{number:,.4g} {what}" for what, number in sorted(numbers.items())) or "none"
