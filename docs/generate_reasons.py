"""Writes the table of docs/troubleshooting.md: every reason of conditions, Events, devices and pods, from the code that defines it.

Run by `make generate`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_api.names import ConfigReason, Reason
from nodedevice_operator.observability.events import OF_CONDITIONS, EventReason

from docs import tables

PAGE = Path(__file__).parent / "troubleshooting.md"
BEGIN: Final = "<!-- reasons: made from the code by `make generate` -->"
END: Final = "<!-- end of reasons -->"
KINDS: Final = (Reason, ConfigReason, EventReason, GpuReason)
_REMEDY: Final = " Remedy: "
_LINK: Final = re.compile(r"\bdocs/([a-z-]+)\.md\b")


class PageError(Exception):
    """The page has no place for the table."""


@dataclass(frozen=True)
class Row:
    """One reason. where: the conditions or objects that have it, as the comment above its group names them."""

    reason: str
    where: str
    meaning: str
    remedy: str


def rows(kind: type) -> Iterator[Row]:
    """The reasons of a class of constants, each with a docstring and in a group that a comment names.

    Raises ValueError for a reason without a group, a meaning or a remedy.
    """
    source = inspect.getsource(kind)
    lines = source.splitlines()
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Constant):
            continue
        reason = str(node.value.value)
        group = next((line.strip() for line in reversed(lines[: node.lineno]) if line.strip().startswith("# ")), "")
        meaning, _, remedy = _docstring(after).partition(_REMEDY)
        if not (group and meaning and remedy):
            raise ValueError(
                f"{kind.__name__}: {reason} needs a comment above its group and a docstring: Meaning. Remedy: what to do."
            )
        yield Row(reason, _where(kind, reason, group.removeprefix("# ")), meaning, remedy)


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _where(kind: type, reason: str, group: str) -> str:
    if kind is EventReason:
        return f"Event: {group}"
    return f"{group}; Event" if reason in OF_CONDITIONS else group


def page_with(page: str) -> str:
    """The page with the table between its marks. Raises PageError for a page without both of them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"the page needs the lines {BEGIN} and {END}")
    every = sorted((row for kind in KINDS for row in rows(kind)), key=lambda row: row.reason)
    lines = [f"| `{row.reason}` | {row.where} | {row.meaning} | {_linked(row.remedy)} |" for row in every]
    return f"{before}{BEGIN}\n\n{tables.table('| reason | where | meaning | remedy |', lines, [])}\n{END}{after}"


def _linked(text: str) -> str:
    """A remedy as a cell: links to pages, and no full stop after a single word."""
    if text == "none.":
        return "none"
    return _LINK.sub(lambda page: f"[{page[1]}]({page[0].removeprefix('docs/')})", text)


def main() -> None:
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
