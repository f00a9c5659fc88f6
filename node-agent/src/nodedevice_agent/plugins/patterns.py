"""Patterns with `*`, `?` and `[...]`, as in a shell. A path's pattern is matched one directory level at a time. Pure.

Not by one regular expression: with eight `*` it tries a name of 119 characters in so many ways that it takes 46 s. What stands
between two `*` has a length, and is placed as far to the right as it fits: each `*` takes as much as it can, the first one first,
and nothing is tried twice.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

# The first character of a class belongs to it even if it is ]; a [ that is never closed is a literal.
WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)

Captures = tuple[str, ...]


def wildcard_count(pattern: str) -> int:
    """Number of wildcards in a pattern, or in a part of it; 0 for plain text."""
    return len(WILDCARD.findall(pattern))


def is_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches all of the text."""
    return _captures(_pieces(pattern), text) is not None


def matched(part: str, name: str) -> Captures | None:
    """The text that each wildcard of one path component matches in `name`; None without a match."""
    if name.startswith(".") and not part.startswith("."):
        return None
    return _captures(_pieces(part), name)


class _Piece(Struct, frozen=True):
    """The text between two `*`. length: of its matches, in characters."""

    regex: re.Pattern[str]
    length: int


def _captures(pieces: Sequence[_Piece], text: str) -> Captures | None:
    head, *others = pieces
    first = head.regex.match(text)
    if first is None or not others:
        return first.groups() if first is not None and first.end() == len(text) else None
    placed: list[re.Match[str]] = []
    end = len(text)
    for piece in reversed(others):
        highest = end - piece.length
        # the last one ends the text
        lowest = max(highest, head.length) if not placed else head.length
        match = next(filter(None, (piece.regex.match(text, at) for at in range(highest, lowest - 1, -1))), None)
        if match is None:
            return None
        placed.append(match)
        end = match.start()
    captures, at = [*first.groups()], first.end()
    for match in reversed(placed):
        captures += [text[at : match.start()], *match.groups()]
        at = match.end()
    return tuple(captures)


@lru_cache(maxsize=1024)
def _pieces(pattern: str) -> tuple[_Piece, ...]:
    pieces, regex, length, end = [], "", 0, 0
    for wildcard in WILDCARD.finditer(pattern):
        plain = pattern[end : wildcard.start()]
        regex, length, end = regex + re.escape(plain), length + len(plain), wildcard.end()
        if wildcard.group() == "*":
            pieces.append(_Piece(re.compile(regex, re.DOTALL), length))
            regex, length = "", 0
        else:
            regex, length = f"{regex}({_as_regex(wildcard.group())})", length + 1
    plain = pattern[end:]
    return (*pieces, _Piece(re.compile(regex + re.escape(plain), re.DOTALL), length + len(plain)))


def _as_regex(wildcard: str) -> str:
    """The pattern of one character."""
    if wildcard == "?":
        return "."
    inverted = wildcard.startswith("[!")
    members = _members(wildcard[2 if inverted else 1 : -1])
    if not members:
        # an empty range such as [z-a] matches nothing, and [!z-a] any character, as in a shell
        return "." if inverted else "(?!)"
    return f"[{'^' if inverted else ''}{members}]"


def _members(text: str) -> str:
    """The inside of a regular expression's class: single characters and ranges, all escaped."""
    members = []
    for first, last, single in re.findall(r"(.)-(.)|(.)", text, re.DOTALL):
        if single:
            members.append(re.escape(single))
        elif first <= last:
            members.append(f"{re.escape(first)}-{re.escape(last)}")
    return "".join(members)
