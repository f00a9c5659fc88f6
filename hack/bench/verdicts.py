"""Decides which rows of a benchmark are worse than at another commit. Values in, values out."""

import statistics
from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

from hack.bench.results import MORE_IS_BETTER, Result

# always allowed, as a fraction of the old median
_ALLOWED = 0.05
# a row of its own for the 99th percentile
_P99_ROW = "_p99"


class Verdict(Enum):
    """The values are the texts in the table."""

    WORSE = "WORSE"
    BETTER = "better"
    EQUAL = "as before"
    # only one side has the row, or the units differ; or it is a p99, or has no goal
    NOT_JUDGED = "not judged"


class Row(Struct, frozen=True):
    """old, new, old_p99, new_p99: medians over the rounds; None if that side has no such row.

    change: from old to new. allowed: the largest change that counts as equal. Both in percent of the old median; None
    if that is 0.
    """

    name: str
    unit: str
    old: float | None
    new: float | None
    old_p99: float | None
    new_p99: float | None
    change: float | None
    allowed: float | None
    verdict: Verdict


def rows(old: Sequence[Mapping[str, Result]], new: Sequence[Mapping[str, Result]]) -> list[Row]:
    """One row for each name of any round, in order of appearance."""
    names = dict.fromkeys(name for results in (*new, *old) for name in results)
    return [_row(name, _of(name, old), _of(name, new)) for name in names]


def worse(found: Sequence[Row]) -> list[str]:
    """Names of the worse rows."""
    return [row.name for row in found if row.verdict is Verdict.WORSE]


def _of(name: str, rounds: Sequence[Mapping[str, Result]]) -> list[Result]:
    return [results[name] for results in rounds if name in results]


def _row(name: str, old: Sequence[Result], new: Sequence[Result]) -> Row:
    before, after = _median(old), _median(new)
    change = allowed = None
    verdict = Verdict.NOT_JUDGED
    units = {result.unit for result in (*old, *new)}
    if before is not None and after is not None and len(units) == 1:
        # a median of 0 has no parts: any other value is beyond what its rounds differ by
        spread = max(abs(before) * _ALLOWED, max(r.value for r in old) - min(r.value for r in old))
        if before:
            change, allowed = 100 * (after - before) / abs(before), 100 * spread / abs(before)
        if not name.endswith(_P99_ROW) and all(result.goal is not None for result in (*old, *new)):
            verdict = _verdict(after - before, spread, is_rate=bool(units.intersection(MORE_IS_BETTER)))
    unit = (*new, *old)[0].unit
    return Row(name, unit, before, after, _p99(old), _p99(new), change, allowed, verdict)


def _verdict(difference: float, allowed: float, *, is_rate: bool) -> Verdict:
    """difference: the new median minus the old one. is_rate: more is better."""
    if abs(difference) <= allowed:
        return Verdict.EQUAL
    return Verdict.BETTER if (difference > 0) == is_rate else Verdict.WORSE


def _median(side: Sequence[Result]) -> float | None:
    return statistics.median(result.value for result in side) if side else None


def _p99(side: Sequence[Result]) -> float | None:
    return statistics.median(result.p99 for result in side) if side else None
