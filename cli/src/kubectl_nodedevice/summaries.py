"""NodeDevices as the API server prints them in rows: what lists of a large cluster are made of. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple

NO_DEVICES: Final = "NoDevices"
# reasons of Ready that need no repair: no hardware, all devices cordoned, not configured
_INTENDED: Final = frozenset({NO_DEVICES, "AllCordoned", "NotConfigured"})
# columns in the order of the fields of Summary, and what an empty cell means
_TEXTS, _NUMBERS = ("name", "node", "resource"), ("total", "healthy", "allocated", "available", "cordoned")
_COLUMNS: Final = (*_TEXTS, *_NUMBERS, "ready", "reason", "agent", "served-by", "waiting")
_EMPTY: Final[Sequence[str | int]] = (*[""] * 3, *[0] * 5, *[""] * 4, 0)


@dataclass(frozen=True, slots=True)
class Rows:
    """One row of a list, as the API server prints it. columns: index of each column's cell, by name in lower case."""

    columns: Mapping[str, int]
    cells: Sequence[Any]

    def cell(self, column: str) -> Any:
        """Return None if the server has no such column, as with an older CRD."""
        at = self.columns.get(column)
        return None if at is None or at >= len(self.cells) else self.cells[at]

    def text(self, column: str) -> str:
        found = self.cell(column)
        return found if isinstance(found, str) else "" if found is None else str(found)

    def number(self, column: str) -> int:
        found = self.cell(column)
        return found if isinstance(found, int) else 0


class Summary(NamedTuple):
    """One row. waiting: None if its CRD has no such column."""

    name: str
    node: str
    resource: str
    total: int
    healthy: int
    allocated: int
    available: int
    cordoned: int
    ready: str
    reason: str
    agent: str
    served_by: str
    waiting: int | None = None

    @property
    def is_unready(self) -> bool:
        """Whether it is not Ready and should be."""
        is_gone = self.reason == "EndpointGone" and not self.allocated
        return self.ready != "True" and not self.is_intended and not is_gone

    @property
    def is_intended(self) -> bool:
        return self.reason in _INTENDED

    @property
    def needs_reading(self) -> bool:
        """Whether the whole object shows more than its row."""
        return self.is_unready or self.reason == NO_DEVICES or self.healthy < self.total or bool(self.waiting)


def summaries_of(rows: Iterable[Rows]) -> Iterator[Summary]:
    """Yield a summary of each row. A large cluster has tens of thousands: usual rows take one step for all cells."""
    columns: Mapping[str, int] | None = None
    cells_of = None
    for row in rows:
        if row.columns is not columns:
            columns = row.columns
            # an older CRD lacks columns
            has_all = columns.keys() >= {*_COLUMNS}
            cells_of = itemgetter(*(columns[name] for name in _COLUMNS)) if has_all else None
        if cells_of is not None and len(row.cells) == len(row.columns):
            cells = cells_of(row.cells)
            if _are_usual(tuple(map(type, cells))):
                yield Summary._make(empty if cell is None else cell for cell, empty in zip(cells, _EMPTY, strict=True))
                continue
        yield _unusual(row)


@lru_cache(64)
def _are_usual(types: tuple[type, ...]) -> bool:
    return all(kind in (type(empty), NoneType) for kind, empty in zip(types, _EMPTY, strict=True))


def _unusual(row: Rows) -> Summary:
    return Summary(
        row.text("name"),
        row.text("node"),
        row.text("resource"),
        row.number("total"),
        row.number("healthy"),
        row.number("allocated"),
        row.number("available"),
        row.number("cordoned"),
        row.text("ready"),
        row.text("reason"),
        row.text("agent"),
        row.text("served-by"),
        row.number("waiting") if "waiting" in row.columns else None,
    )
