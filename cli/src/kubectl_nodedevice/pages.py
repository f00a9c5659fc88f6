"""Reads one page of a list object by object as its text arrives, and cuts large objects. Pure.

Tenants write up to 1.5 MB into an object, and an agent into its NodeDevices. Only one object at a time is decoded. A limited number
of large objects is kept whole; the others lose their long fields.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, cast

from nodedevice_kube.decoding import Undecodable, decode_json
from nodedevice_kube.fields import Json, map_of
from nodedevice_kube.list_items import Item, ListItems, identity

T = TypeVar("T")
# The API server stores up to 1.5 MB, which JSON escapes can make nine times as large.
MOST_OBJECT_BYTES: Final = 16 << 20
# ten times the largest usual list of devices
LARGE_BYTES: Final = 64 << 10
# large objects of one list that are kept whole
MOST_LARGE_BYTES: Final = 12 << 20
# the longest field of other large objects
_MOST_FIELD_BYTES: Final = 4 << 10


@dataclass
class Bounds:
    """Bounds of one list. cut: how many objects lost long fields. unread: unreadable objects, and why."""

    cut: int = 0
    unread: tuple[str, ...] = ()
    large_bytes: int = 0

    def kept(self, obj: Json, size: int) -> Json:
        """Return the object, or a cut copy. size: bytes of its text."""
        if size <= LARGE_BYTES:
            return obj
        self.large_bytes += size
        if self.large_bytes <= MOST_LARGE_BYTES:
            return obj
        self.cut += 1
        return short(obj)


def short(obj: Json) -> Json:
    """Remove long fields of metadata, spec and status. A NodeDevice's devices then count as omitted."""
    found = {key: _short_fields(part) for key, part in obj.items()}
    if "devices" in map_of(obj, "status") and "devices" not in map_of(found, "status"):
        found["status"]["devicesOmitted"] = found["status"].get("total")
    return found


def _short_fields(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if _is_short(value)}


def _is_short(value: Any) -> bool:
    try:
        return len(json.dumps(value)) <= _MOST_FIELD_BYTES
    except RecursionError:
        # It was decoded with a smaller stack.
        return False


class TablePage:
    """Takes the text of one page of a Table whole: its rows have no objects, and are short. The same interface as Page."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.found: list[Any] = []
        self.count = self.octets = 0
        self._pieces: list[bytes] = []

    def take(self, text: bytes) -> None:
        self.octets += len(text)
        self._pieces.append(text)

    def envelope(self) -> Json:
        """Return the Table without its rows, after all of its text. Once. Raises Undecodable."""
        text, self._pieces = b"".join(self._pieces), []
        found = decode_json(text)
        rows = found.pop("rows", None) if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise Undecodable("it has no array rows")
        self.found, self.count = [each for each in rows if isinstance(each, dict)], len(rows)
        return cast(Json, found)

    def limit(self, page_bytes: int) -> int:
        """Return how many such rows have about so many bytes, at least one."""
        return max(self.count * page_bytes // max(self.octets, 1), 1)


class Page(Generic[T]):
    """Takes the text of one page in pieces. make: builds a value from an object.

    bounds: of the list, with this page. found: the values, in order. count, octets: of the objects so far.
    """

    def __init__(self, make: Callable[[Json], T], bounds: Bounds) -> None:
        self.found: list[T] = []
        self.count = self.octets = 0
        self.bounds = replace(bounds)
        self._make = make
        self._items = ListItems(MOST_OBJECT_BYTES)

    def take(self, text: bytes) -> None:
        """Raises Undecodable unless the text is a list."""
        self.octets += len(text)
        for item in self._items.feed(text):
            self.count += 1
            self._add(item)

    def _add(self, item: Item) -> None:
        try:
            if not item.is_whole:
                raise Undecodable(f"it is longer than {MOST_OBJECT_BYTES >> 20} MiB")
            obj = decode_json(item.text)
        except Undecodable as exc:
            who = identity(item.text)
            name = f"{who.namespace}/{who.name}" if who and who.namespace else who.name if who else "one without a name"
            self.bounds.unread += (f"{name}: {exc}",)
            return
        if isinstance(obj, dict):
            self.found.append(self._make(self.bounds.kept(obj, item.size)))

    def envelope(self) -> Json:
        """Return the list without its objects, after all of its text. Raises Undecodable."""
        found = decode_json(self._items.envelope())
        if not isinstance(found, dict):
            raise Undecodable("it is not an object")
        return found

    def limit(self, page_bytes: int) -> int:
        """Return how many such objects have about so many bytes, at least one."""
        return max(self.count * page_bytes // max(self.octets, 1), 1)
