"""Splits a list in JSON into its objects while the text arrives, so that only one of them is in memory. Pure.

A list has its objects in the array `items`, a table in `rows`. An item's text is returned once it is complete. Only the decoder
judges whether an item, or the rest (the envelope), is valid JSON.
"""

import re
from typing import Final, NamedTuple

from nodedevice_kube.decoding import Undecodable

# bytes of a list without its items; an API server sends some hundred
MOST_ENVELOPE_BYTES: Final = 64 * 1024
# bytes that are kept of an item that is too long; they name the object
HEAD_BYTES: Final = 16 * 1024

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# up to the next bracket outside of strings
_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+[\[{\]}]", re.DOTALL)
# up to a string that does not end
_WHOLE: Final = re.compile(rb"(?:[^\"]++|" + _STRING + rb")*+", re.DOTALL)
# the rest of a string
_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_IS_ARRAY: Final = r'(?:^|[{,])\s*"%s"\s*:\s*\[$'
_OPENING: Final = frozenset(b"[{")
# strings, and one without an end
_STRINGS: Final = re.compile(_STRING + b"?", re.DOTALL)
_OPEN: Final = ord("[")
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_ALL_ELSE: Final = bytes(octet for octet in range(256) if octet not in b"[]{}")
# rounds in which inner pairs of brackets are removed before the rest is counted
_COLLAPSES: Final = 8
# Values of these fields need no escapes in JSON. Compiled at its rare use.
_VALUE: Final = rb'"([a-zA-Z0-9.:_-]*)"'
_HEAD: Final = (
    rb'^[^\[]{0,200}"metadata":\{"name":' + _VALUE + rb'(?:,"generateName":"[^"]*")?'
    rb'(?:,"namespace":'
    + _VALUE
    + rb')?(?:,"selfLink":"[^"]*")?,"uid":'
    + _VALUE
    + rb'(?:,"resourceVersion":'
    + _VALUE
    + rb")?"
)
_PIECE_BYTES: Final = 8 * 1024
_BETWEEN: Final = b", \t\r\n"
# brackets around an item: of the list, and of `items`
_OUTSIDE: Final = 2


class Item(NamedTuple):
    """text: of an object; of one that is too long its first HEAD_BYTES. size: bytes of the whole object."""

    text: bytes
    size: int

    @property
    def is_whole(self) -> bool:
        return len(self.text) == self.size


class Identity(NamedTuple):
    """Metadata of an object; None for a field that its start lacks."""

    name: str
    namespace: str | None
    uid: str | None
    version: str | None


def identity(head: bytes) -> Identity | None:
    """Return the metadata at the start of an object, where an API server writes it first; None without a name."""
    found = re.search(_HEAD, head)
    if found is None:
        return None
    name, namespace, uid, version = (None if text is None else text.decode("ascii") for text in found.groups())
    return Identity(name or "", namespace, uid, version)


class ListItems:
    """Takes the text of one list in chunks. most_bytes: of an item. array: the key of the array of items."""

    def __init__(self, most_bytes: int, array: str = "items") -> None:
        self._most_bytes = most_bytes
        self._is_array = re.compile((_IS_ARRAY % array).encode())
        self._depth = 0
        # whether the text so far ends within a string, and after a backslash there
        self._is_in_string = self._is_escaped = False
        self._is_in_items = False
        self._parts: list[bytes] = []
        self._size = 0
        self._envelope = bytearray()

    def feed(self, chunk: bytes) -> list[Item]:
        """Return the items that this chunk completes. Raises Undecodable unless the text is a list of an API server."""
        found: list[Item] = []
        for begin in range(0, len(chunk), _PIECE_BYTES):
            found += self._feed(chunk[begin : begin + _PIECE_BYTES])
        return found

    def _feed(self, chunk: bytes) -> list[Item]:
        found: list[Item] = []
        begin, position = 0, self._end_of_string(chunk)
        depth = self._depth
        if depth > _OUTSIDE and self._is_in_items:
            lowest, change = _depths(chunk, position)
            if depth + lowest > _OUTSIDE:
                # a long item consists mostly of such pieces
                self._depth += change
                self._begin_string(chunk, position)
                self._inside(chunk)
                return found
        while (token := _BRACKET.match(chunk, position)) is not None:
            position = token.end()
            if chunk[position - 1] in _OPENING:
                depth += 1
                if depth == _OUTSIDE + 1 and self._is_in_items:
                    self._outside(chunk[begin : position - 1])
                    begin = position - 1
                elif depth == _OUTSIDE:
                    self._outside(chunk[begin:position])
                    begin = position
                    self._is_in_items = self._is_array.search(self._envelope) is not None
            else:
                depth -= 1
                if depth == _OUTSIDE and self._is_in_items:
                    self._inside(chunk[begin:position])
                    found.append(self._taken())
                    begin = position
                elif depth == _OUTSIDE - 1 and self._is_in_items:
                    self._outside(chunk[begin : position - 1])
                    begin = position - 1
                    self._is_in_items = False
        self._depth = depth
        self._begin_string(chunk, position)
        if depth > _OUTSIDE and self._is_in_items:
            self._inside(chunk[begin:])
        else:
            self._outside(chunk[begin:])
        return found

    def envelope(self) -> bytes:
        """Return the list without its items after all of its text. Raises Undecodable if it is cut off."""
        if self._depth or self._is_in_string:
            raise Undecodable("the list is cut off")
        return bytes(self._envelope)

    def _inside(self, text: bytes) -> None:
        """Collect bytes of an item; only the start of an item that is too long."""
        self._size += len(text)
        self._parts.append(text)
        if self._size > self._most_bytes:
            self._parts = [b"".join(self._parts)[:HEAD_BYTES]]

    def _taken(self) -> Item:
        item = Item(b"".join(self._parts), self._size)
        self._parts, self._size = [], 0
        return item

    def _outside(self, text: bytes) -> None:
        """Collect bytes outside of items, without the commas between items."""
        self._envelope += text.strip(_BETWEEN) if self._is_in_items else text
        if len(self._envelope) > MOST_ENVELOPE_BYTES:
            raise Undecodable(f"the list has more than {MOST_ENVELOPE_BYTES} bytes besides its items")

    def _end_of_string(self, chunk: bytes) -> int:
        """Return the end of the string in which the chunk begins; 0 outside of strings."""
        if not self._is_in_string:
            return 0
        begin = 1 if self._is_escaped and chunk else 0
        rest = _REST.match(chunk, begin)
        if rest is None:
            self._is_escaped = _ends_in_escape(chunk[begin:]) if chunk else self._is_escaped
            return len(chunk)
        self._is_in_string = self._is_escaped = False
        return rest.end()

    def _begin_string(self, chunk: bytes, position: int) -> None:
        if self._is_in_string or position == len(chunk):
            return
        whole = _WHOLE.match(chunk, position)
        assert whole is not None
        self._is_in_string = whole.end() < len(chunk)
        self._is_escaped = self._is_in_string and _ends_in_escape(chunk[whole.end() + 1 :])


def _depths(chunk: bytes, begin: int) -> tuple[int, int]:
    """Return the lowest and the last depth of a text that begins outside of strings, counted from its start.

    This is several times as fast as a search for each bracket.
    """
    brackets = _STRINGS.sub(b"", chunk[begin:]).translate(_ALIKE, _ALL_ELSE)
    for _ in range(_COLLAPSES):
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) == before:
            break
    depth = lowest = 0
    for bracket in brackets:
        depth += 1 if bracket == _OPEN else -1
        lowest = min(lowest, depth)
    return lowest, depth


def _ends_in_escape(text: bytes) -> bool:
    """Whether the rest of a string ends with an odd number of backslashes."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
