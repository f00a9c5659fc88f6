"""What kubectl printed, made fit for a page: cut to what matters, and the same whenever it is made again.

Pure text in, text out; who runs kubectl is generate_transcripts. The rules, which the page states as well: ages are `1m`, times
noon of a first of January, UIDs are numbered. Of `kubectl describe` remain the conditions that are not as on a node where all is
well, and the Events; what is left out is `...`.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nodedevice_api.names import Reason

BEGIN: Final = "<!-- transcripts: made by `make transcripts`, not to be edited by hand -->"
END: Final = "<!-- end of the transcripts -->"

_AGE: Final = "1m"
_TIME: Final = "2026-01-01T12:00:00Z"
_AGE_COLUMNS: Final = frozenset({"AGE", "Age", "LAST SEEN"})
_WELL: Final = frozenset(
    {
        Reason.ENDPOINT_RUNNING,
        Reason.ALL_HEALTHY,
        Reason.RUNTIME_NONE,
        Reason.WATCHES_CURRENT,
        Reason.ADVERTISED,
        Reason.NO_CONFLICT,
        Reason.LEASE_RENEWED,
        Reason.READY,
    }
)
_CUT: Final = "..."
_DURATION = re.compile(r"\b(?:\d+[smhd])+")
_TIMES = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_UIDS = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TYPED = re.compile(r"^\$ (kubectl .*)$", re.MULTILINE)


class PageError(Exception):
    """The page has no place for the transcripts."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What was typed, and what came out."""

    command: str
    output: str


@dataclass(frozen=True, slots=True)
class Part:
    """A few words and the commands below them, in one block."""

    words: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One thing that can happen, from how it begins to how it ends."""

    title: str
    parts: tuple[Part, ...]


def page_with(page: str, stories: Iterable[Story]) -> str:
    """The page with these stories between its markers. Raises PageError where it has not both of them, in order."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n{''.join(_story(story) for story in stories)}{end}{after}"


def commands(page: str) -> list[list[str]]:
    """The kubectl commands between the markers, each split into its words."""
    between = page.partition(BEGIN)[2].partition(END)[0]
    return [shlex.split(typed) for typed in _TYPED.findall(between)]


def steady(output: str) -> str:
    """`output` with what differs from run to run replaced, columns in line again."""
    lines = output.rstrip("\n").splitlines()
    if lines and any(column in lines[0] for column in _AGE_COLUMNS):
        lines = list(_table(lines))
    known: dict[str, str] = {}
    numbered = _UIDS.sub(lambda found: known.setdefault(found[0], _uid(len(known) + 1)), "\n".join(lines))
    return _TIMES.sub(_TIME, numbered)


def described(output: str) -> str:
    """Of what `kubectl describe` prints: the name, conditions that need attention, Events."""
    lines = output.rstrip("\n").splitlines()
    name = next(line for line in lines if line.startswith("Name:"))
    events = next(index for index, line in enumerate(lines) if line.startswith("Events:"))
    table = lines[events + 1 :]
    reported = [lines[events], *_table(table)] if table else [lines[events]]
    return "\n".join([name, *_conditions(lines[:events]), *reported])


def _story(story: Story) -> str:
    parts = "".join(f"{part.words}\n\n```console\n{_block(part)}```\n\n" for part in story.parts)
    return f"### {story.title}\n\n{parts}"


def _block(part: Part) -> str:
    return "".join(f"$ {shown.command}\n{shown.output}\n" for shown in part.shown)


def _conditions(lines: list[str]) -> Iterator[str]:
    """The conditions that are not as on a node where all is well, with `...` in place of everything else."""
    yield _CUT
    if "  Conditions:" not in lines:
        return
    begin = lines.index("  Conditions:") + 1
    entries: list[list[str]] = []
    for line in lines[begin:]:
        if not line.startswith("    "):
            break
        if line.startswith("    Last Transition Time:"):
            entries.append([])
        entries[-1].append(line)
    notable = [entry for entry in entries if not _is_well(entry)]
    if notable:
        yield "  Conditions:"
        for entry in notable:
            yield from entry
        yield _CUT


def _is_well(entry: list[str]) -> bool:
    return any(line.split()[0] == "Reason:" and line.split()[1] in _WELL for line in entry)


def _table(lines: list[str]) -> Iterator[str]:
    """The lines of a table with its ages replaced, and padded again."""
    begins = [found.start() for found in re.finditer(r"\S+(?: \S+)*", lines[0])]
    rows = [[line[a:b].strip() for a, b in zip(begins, [*begins[1:], None], strict=True)] for line in lines]
    for index, title in enumerate(rows[0]):
        if title in _AGE_COLUMNS:
            for row in rows[1:]:
                row[index] = _DURATION.sub(_AGE, row[index])
    widths = [max(len(row[index]) for row in rows) for index in range(len(begins))]
    for row in rows:
        padded = "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (" " * begins[0] + padded).rstrip()


def _uid(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"
