"""A row of the table of obstacles. Pure.

Placeholders of a sentence, an advice and a line are fields of the finding. In a line each is quoted for a shell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubectl_nodedevice.shell import Typed, quoted
from kubectl_nodedevice.why.reasons.rights import Access, Role


@dataclass(frozen=True, slots=True)
class Line:
    """A command with placeholders. needs: the right that it needs; role: a role with that right."""

    text: str
    role: Role
    needs: Access


@dataclass(frozen=True, slots=True)
class Help:
    """The words of a row about a node or a device."""

    sentence: str
    advice: str
    line: Line


@dataclass(frozen=True, slots=True)
class Row:
    """code: stable, for scripts. line: the command that helps. of_node, of_device: None if the words about a pod fit."""

    code: str
    sentence: str
    advice: str
    line: Line
    of_node: Help | None = None
    of_device: Help | None = None

    def asked_of(self, subject: str) -> "Row":
        """Return the row with its words about a `node` or a `device`."""
        words = {"node": self.of_node, "device": self.of_device or self.of_node}.get(subject)
        if words is None:
            return self
        return replace(self, sentence=words.sentence, advice=words.advice, line=words.line)


def line_of(row: Row, fields: Mapping[str, str]) -> Typed:
    """The command with its fields quoted. A field that ends in `_options` consists of quoted words already."""
    line = row.line.text
    if fields.get("device", "").startswith("-"):
        # a device ID in the form of an option comes last
        before, _, after = line.partition(" {device}")
        line = f"{before}{after} -- {{device}}"
    words = {key: value if key.endswith("_options") else quoted(value) for key, value in fields.items()}
    return Typed(line.format(**words).rstrip())
