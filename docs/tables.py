"""Tables of generated pages: a cell is short, and the rest of a longer text is in a list below the table."""

import re
import textwrap
from typing import Final

# of a cell's text, in characters
LONGEST = 150
# of a line outside of tables
LINE: Final = 100
# what begins a list, a heading or a row, at the beginning of a line
_BLOCK: Final = re.compile(r"\n +(?=[-+*|#>]|\d+\.)")


def divided(text: str) -> tuple[str, str]:
    """Divide a text at the end of a sentence: what fits into a cell, and the rest. Raises ValueError if no sentence fits."""
    cell, rest = text, ""
    while len(cell) > LONGEST - bool(rest):  # its full stop
        cell, end, last = cell.rpartition(". ")
        if not end:
            raise ValueError(f"make the first sentence at most {LONGEST} characters long: {text}")
        rest = f"{last}. {rest}" if rest else last
    return cell + "." * bool(rest), rest


def wrapped(text: str, indent: str = "") -> str:
    """Break a paragraph, or an item of a list, into lines. Only the first line may begin a block."""
    lines = textwrap.fill(text, LINE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return _BLOCK.sub(" ", lines)


def table(head: str, rows: list[str], below: list[str]) -> str:
    """Join the lines of a table, and the list below it if there is one. Ends with a line feed."""
    items = [wrapped(f"- {item}", "  ") for item in below]
    lines = [head, "|---" * (head.count("|") - 1) + "|", *rows, *[""] * bool(below), *items]
    return "".join(f"{line}\n" for line in lines)
