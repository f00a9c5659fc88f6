"""A row of the table. Pure.

Placeholders of a sentence, an advice and a line are fields of the finding; in a line each is quoted for a shell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubectl_nodedevice.shell import Typed, quoted
from kubectl_nodedevice.why.reasons.rights import Access, Role


@dataclass(frozen=True, slots=True)
class Help:
    """The text of a cause, if the subject is a node or a device. needs: the rights that the line needs."""

    sentence: str
    advice: str
    line: str
    role: Role
    needs: Access


@dataclass(frozen=True, slots=True)
class Row:
    """code: stable, for scripts. sentence: for people. line: that would help. needs: what the line does.

    of_node, of_device: where the question is about one; None where a pod's words do for it as well.
    """

    code: str
    sentence: str
    advice: str
    line: str
    role: Role
    needs: Access
    of_node: Help | None = None
    of_device: Help | None = None

    def asked_of(self, subject: str) -> "Row":
        """Return the row with its words and remedy for a `node` or a `device`."""
        found = {"node": self.of_node, "device": self.of_device or self.of_node}.get(subject)
        if found is None:
            return self
        words = {"sentence": found.sentence, "advice": found.advice, "line": found.line}
        return replace(self, **words, role=found.role, needs=found.needs)  # type: ignore[arg-type]  # texts by name of a field


def line_of(row: Row, fields: Mapping[str, str]) -> Typed:
    """The command, each field of it quoted; one that ends in `_options` is made of quoted words already."""
    line = row.line
    if fields.get("device", "").startswith("-"):
        # an ID in the form of an option comes last
        before, _, after = line.partition(" {device}")
        line = f"{before}{after} -- {{device}}"
    words = {key: value if key.endswith("_options") else quoted(value) for key, value in fields.items()}
    return Typed(line.format(**words).rstrip())
