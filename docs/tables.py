"""What the tables of generated pages have in common: a cell is short, and what is longer goes into a list below the table."""

# of a cell's text, in characters
LONGEST = 150


def divided(text: str) -> tuple[str, str]:
    """What fits into a cell, and the rest, divided at the end of a sentence. Raises ValueError where the first one does not fit."""
    cell, rest = text, ""
    while len(cell) > LONGEST - bool(rest):  # its full stop
        cell, end, last = cell.rpartition(". ")
        if not end:
            raise ValueError(f"make the first sentence at most {LONGEST} characters long: {text}")
        rest = f"{last}. {rest}" if rest else last
    return cell + "." * bool(rest), rest


def table(head: str, rows: list[str], below: list[str]) -> str:
    """A table of those lines, and the list below it where there is one. Ends with a line feed."""
    lines = [head, "|---" * (head.count("|") - 1) + "|", *rows, *[""] * bool(below), *(f"- {each}" for each in below)]
    return "".join(f"{line}\n" for line in lines)
