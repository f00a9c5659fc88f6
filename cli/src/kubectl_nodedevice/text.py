"""What others have named, for a terminal: text that cannot steer it. Every text that is shown passes `plain`. Pure."""

import re
import unicodedata
from datetime import UTC, datetime
from typing import Final

# before the first word of a line, or of an item of a list: where its other lines begin
_INDENT: Final = re.compile(r" *(?:\d+\. )?")
_SECONDS_PER: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def plain(text: str) -> str:
    """The text on one line, without characters that a terminal obeys: escapes, other controls, changes of direction."""
    if text.isprintable():
        return text
    return "".join(_plain(each) for each in text)


def _plain(character: str) -> str:
    if character.isprintable():
        return character
    # a space of another width is shown as one; line feeds and tabs end a word
    return " " if character.isspace() else ""


def folded(text: str, columns: int) -> list[str]:
    """Lines of at most so many columns, broken between words. A longer word has a line of its own, and is whole."""
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
    """Columns of a terminal that it takes."""
    if text.isascii():
        return len(text)
    return sum(_width(each) for each in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def moment(text: str) -> datetime | None:
    """A time of the API; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age(since: str, now: datetime) -> str:
    """The age, such as `12 min`; "" if unknown. Only the bigger unit, as kubectl shows ages above ten."""
    start = moment(since)
    if start is None:
        return ""
    seconds = max(0, int((now - start).total_seconds()))
    for size, unit in _SECONDS_PER:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def counted(number: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def some(names: list[str], most: int = 3) -> str:
    """The first of them, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
