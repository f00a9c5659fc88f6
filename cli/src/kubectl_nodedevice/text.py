"""Makes foreign text safe for a terminal, and formats times and lists. All printed text passes `plain`. Pure."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Final

# the indent of a line or list item, which its further lines repeat
_INDENT: Final = re.compile(r" *(?:\d+\. )?")
_SECONDS_PER: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def plain(text: str) -> str:
    """Return one line without control characters: escapes, changes of direction, line feeds."""
    if text.isprintable():
        return text
    return "".join(_plain(each) for each in text)


def _plain(character: str) -> str:
    if character.isprintable():
        return character
    # spaces of other widths, line feeds and tabs become a space
    return " " if character.isspace() else ""


def folded(text: str, columns: int) -> list[str]:
    """Break text between words into lines of at most so many columns. A longer word has a line of its own."""
    if width(text) <= columns:
        return [text]
    head = _INDENT.match(text)
    indent = " " * (len(head[0]) if head else 0)
    if len(indent) * 2 > columns:
        indent = ""
    lines, line = [], head[0] if head else ""
    for number, word in enumerate(text[len(line) :].split(" ")):
        if number and width(line) + 1 + width(word) > columns and line.strip():
            lines.append(line)
            line = f"{indent}{word}"
        else:
            line += f" {word}" if number else word
    return [each.rstrip() for each in (*lines, line)]


def width(text: str) -> int:
    """Return the columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_width(each) for each in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def moment(text: str) -> datetime | None:
    """Parse a time of the API. Return None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age(since: str, now: datetime) -> str:
    """Return an age such as `12 min`, in one unit as kubectl; "" if unknown."""
    start = moment(since)
    if start is None:
        return ""
    seconds = max(0, int((now - start).total_seconds()))
    for size, unit in _SECONDS_PER:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def counted(number: int, noun: str) -> str:
    """Return `1 device`, `2 devices`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some(names: list[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
