"""Records with fields that do not count in comparisons: derived from the other fields, or beside the point. Pure.

A struct itself compares and shows all its fields.
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar

import msgspec


class Record(msgspec.Struct, frozen=True, eq=False):
    """UNCOMPARED: names of the fields that neither count in comparisons nor appear in the repr, as they may be long or secret."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        values = _compared(type(self))
        return bool(values(self) == values(other))

    # the struct's own would compare identities
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_compared(type(self))(self))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _names(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


def _names(kind: type[Record]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name not in kind.UNCOMPARED)


@cache
def _compared(kind: type[Record]) -> Callable[[Any], Any]:
    return attrgetter(*_names(kind))
