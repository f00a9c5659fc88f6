"""A row of the table. Pure.

Placeholders of a sentence and of a line are fields of the finding; in a line each is quoted for a shell.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubectl_nodedevice.shell import Typed, quoted
from kubectl_nodedevice.why.reasons.rights import Access, Role


@dataclass(frozen=True, slots=True)
class Row:
    """code: stable, for scripts. meaning: for the docs. sentence: for people. line: that would help. needs: what the line does."""

    code: str
    meaning: str
    sentence: str
    advice: str
    line: str
    role: Role
    needs: Access


def line_of(row: Row, fields: Mapping[str, str]) -> Typed:
    """The command, each field of it quoted; one that ends in `_options` is made of quoted words already."""
    line = row.line
    if fields.get("device", "").startswith("-"):
        # an ID that looks like an option comes last
        before, _, after = line.partition(" {device}")
        line = f"{before}{after} -- {{device}}"
    words = {key: value if key.endswith("_options") else quoted(value) for key, value in fields.items()}
    return Typed(line.format(**words).rstrip())
