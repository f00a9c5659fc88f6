"""Makes the table of values in charts/nodedevice/README.md from values.yaml: each value, its default, and the comment above it.

Part of `make generate`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from docs import tables

_CHART = Path(__file__).parent / "nodedevice"
README = _CHART / "README.md"
BEGIN, END = "<!-- values: generated -->", "<!-- end of values -->"
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]+):(?P<value>.*)")


@dataclass
class _Reader:
    """Reads values.yaml line by line. Tracks the last comment and the open keys; `comments` is the result."""

    comments: dict[str, str] = field(default_factory=dict)
    comment: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=list)

    def read(self, line: str) -> None:
        text = line.strip()
        if text.startswith("#"):
            self.comment.append(text.lstrip("# "))
            return
        match = _KEY.fullmatch(line)
        if match:
            self.path = [*self.path[: len(match["indent"]) // 2], match["key"]]
            self.comments[".".join(self.path)] = " ".join(self.comment)
        self.comment = []


def comments(text: str) -> dict[str, str]:
    """Return the comment above each key, by its dotted path; "" without a comment."""
    reader = _Reader()
    for line in text.splitlines():
        reader.read(line)
    return reader.comments


def table(values: str) -> str:
    """The table, in the order of the file; values with the same comment share a row.

    Raises SystemExit for a value without a comment, and ValueError for a comment that does not fit into a cell.
    """
    comment_of = comments(values)
    alike: dict[str, tuple[list[str], list[str]]] = {}
    for path, default in _leaves(yaml.safe_load(values), comment_of):
        explained = comment_of[path] or comment_of.get(path.rpartition(".")[0], "")
        if not explained:
            raise SystemExit(f"values.yaml: {path} has no comment, nor has what it is in")
        if len(explained) > tables.LONGEST:
            raise ValueError(f"values.yaml: the comment of {path} has more than {tables.LONGEST} characters")
        paths, defaults = alike.setdefault(explained, ([], []))
        paths.append(f"`{path}`")
        defaults.append(f"`{json.dumps(default, ensure_ascii=False)}`")
    rows = [
        f"| {', '.join(paths)} | {', '.join(defaults[:1] if len(set(defaults)) == 1 else defaults)} | {explained} |"
        for explained, (paths, defaults) in alike.items()
    ]
    return tables.table("| value | default | what it is |", rows, [])


def _leaves(values: dict[str, Any], comment_of: dict[str, str], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        path = f"{before}{key}"
        # a mapping on one line is one value, and so is a mapping that starts empty
        is_open = isinstance(value, dict) and any(each.startswith(f"{path}.") for each in comment_of)
        if is_open:
            yield from _leaves(value, comment_of, f"{path}.")
        else:
            yield path, value


def with_table(readme: str) -> str:
    """Return the README with the table between its two marks. Raises ValueError without marks."""
    before, _, rest = readme.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{README} has no {BEGIN} … {END}")
    values = (_CHART / "values.yaml").read_text(encoding="utf-8")
    return f"{before}{BEGIN}\n{table(values)}{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
