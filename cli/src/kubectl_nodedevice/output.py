"""Writes all output: tables, lines, JSON and YAML on standard output; errors and progress on standard error.

Secrets in text are masked (`shown`). Text to be copied, a command or a block, is never wrapped, cut or masked. Only a terminal
gets colours and wrapped lines; a pipe gets plain columns of any width.
"""

import itertools
import json
import os
import sys
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.masking import masked

from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.shell import NONE, Typed
from kubectl_nodedevice.styles import BOLD, FAINT
from kubectl_nodedevice.text import folded, plain, width

API_VERSION: Final = "kubectl.nodedevice.io/v1alpha1"
# Larger tables are not wrapped: people do not read them, and wrapping is slow.
_MOST_WRAPPED: Final = 300
# Characters of a word that a column keeps whole. The terminal breaks longer words if it has no room.
_LEAST: Final = 24
# indent of the second and further lines of a row that is printed as words
_HANGING: Final = "    "
# rows of a large table that are searched for secrets together
_ROWS: Final = 500
# first words of a command, the longer one first
_PROGRAMS: Final = ("kubectl nodedevice", "kubectl")
# no progress is shown of shorter work
_PATIENCE_SECONDS: Final = 1.0


Failure = CliError | ApiError


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = ""


# one cell for each column
Row = Sequence[str | Cell]


@dataclass
class Table:
    """numbers: columns that are aligned at their right."""

    columns: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    numbers: Collection[str] = ()

    def add(self, *cells: str | Cell) -> None:
        self.rows.append(cells)


@dataclass
class Screen:
    """form: "", wide, json or yaml. flags: name cluster and person, and are added to each printed command."""

    form: str = ""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    flags: Typed = NONE
    _progress_since: float = 0.0
    _is_progress_shown: bool = False

    @property
    def is_for_machines(self) -> bool:
        return self.form in ("json", "yaml")

    @property
    def is_wide(self) -> bool:
        return self.form == "wide"

    @property
    def is_terminal(self) -> bool:
        return self.out.isatty()

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line; a narrow terminal wraps it."""
        text = shown(text)
        for each in folded(text, self._columns()) if self.is_terminal else [text]:
            self._print(each, style)

    def command(self, command: Typed, indent: int = 3) -> None:
        """Print a command to copy, below the text that it belongs to."""
        self._print(f"{' ' * indent}{self.typed(command)}", FAINT)

    def typed(self, command: Typed) -> Typed:
        """Return the command for the same cluster and person."""
        if not self.flags:
            return command
        # kubectl drops flags that stand before the name of a plugin.
        program = next((each for each in _PROGRAMS if command.startswith(f"{each} ")), "")
        return Typed(f"{program} {self.flags}{command.removeprefix(program)}") if program else command

    def block(self, text: str) -> None:
        """Print lines to copy, such as YAML or a script; spaces and tabs stay."""
        for each in text.splitlines():
            print("\t".join(map(plain, each.split("\t"))), file=self.out)

    def table(self, table: Table) -> None:
        if not table.rows:
            return
        if self.is_terminal and len(table.rows) <= _MOST_WRAPPED:
            self._rich_table(table, [[_cell(each) for each in row] for row in table.rows])
            return
        # The last column may have any width, unless it is aligned at its right.
        padded = table.columns if table.columns[-1] in table.numbers else table.columns[:-1]
        widths = [width(name) for name in padded]
        # the masked text is not kept, as there can be very many rows
        for texts in _shown_rows(table.rows):
            widths = [max(size, width(each)) for size, each in zip(widths, texts, strict=False)]
        shapes = [(size, name in table.numbers) for size, name in zip(widths, padded, strict=True)]
        for row in itertools.chain([table.columns], _shown_rows(table.rows)):
            line = [*map(_padded, row, shapes), *row[len(padded) :]]
            self.out.write(f"{'  '.join(line).rstrip()}\n")

    def data(self, kind: str, content: Mapping[str, Any]) -> None:
        """Print an object as JSON or YAML. Items of an iterator are written when all have arrived."""
        whole = self._for_machines({"apiVersion": API_VERSION, "kind": kind, **content})
        if self.form == "yaml":
            import yaml

            yaml.safe_dump(whole, self.out, sort_keys=False, width=120)
            return
        packed = _Packed()
        # as printable ASCII
        json.dump(whole, packed, indent=2)
        for text in packed.texts():
            self.out.write(text)
        print(file=self.out)

    def _for_machines(self, value: Any, key: str = "") -> Any:
        """Mask secrets in words. Names stay unchanged."""
        if isinstance(value, Mapping):
            return {name: self._for_machines(each, name) for name, each in value.items()}
        if isinstance(value, Iterator):
            return (
                _Lazy(self._for_machines(each) for each in value)
                if self.form == "json"
                else self._for_machines([*value])
            )
        if isinstance(value, list | tuple):
            return [self._for_machines(each) for each in value]
        if not isinstance(value, str) or " " not in value:
            return value
        return self.typed(Typed(value)) if key == "command" else masked(value)

    def note(self, text: str, end: str = "\n") -> None:
        """Print one line for people on standard error, in addition to the result."""
        self.end_progress()
        print(shown(text), end=end, file=self.err, flush=True)

    def fail(self, error: Failure) -> None:
        self.end_progress()
        remedy = f"; {error.remedy}" if error.remedy else ""
        print(shown(f"error: {error.problem}{remedy}"), file=self.err)

    def progress(self, text: str) -> None:
        """Show the current step after the first second, and only on a terminal."""
        now = time.monotonic()
        self._progress_since = self._progress_since or now
        if now - self._progress_since < _PATIENCE_SECONDS or not self.err.isatty():
            return
        self._is_progress_shown = True
        print(f"\r\x1b[K{shown(text)[: self._columns() - 1]}", end="", file=self.err, flush=True)

    def end_progress(self) -> None:
        if self._is_progress_shown:
            print("\r\x1b[K", end="", file=self.err, flush=True)
        self._progress_since, self._is_progress_shown = 0.0, False

    def _columns(self) -> int:
        import shutil

        return max(20, shutil.get_terminal_size().columns)

    def _console(self) -> Any:
        from rich.console import Console

        # None lets the library decide by NO_COLOR, TERM and the terminal
        no_color = True if os.environ.get("NO_COLOR") else None
        return Console(
            file=self.out, width=self._columns(), highlight=False, markup=False, emoji=False, no_color=no_color
        )

    def _print(self, text: str, style: str) -> None:
        """Print one line unchanged, of any length."""
        if self.is_terminal and style:
            self._console().print(text, style=style, soft_wrap=True)
        else:
            print(text, file=self.out)

    def _rich_table(self, given: Table, rows: list[list[Cell]]) -> None:
        columns = given.columns
        every = [[Cell(name) for name in columns], *rows]
        widths, least = _widths(every), [min(size, _LEAST) for size in _widths(every, of_words=True)]
        gaps = len(widths) - 1
        if sum(least) + gaps > self._columns():
            for row in rows:
                self._record(columns, row)
            return
        from rich.table import Table as RichTable
        from rich.text import Text

        fits = sum(widths) + 2 * gaps <= self._columns()
        table = RichTable(box=None, pad_edge=False, padding=(0, 2 if fits else 1, 0, 0), header_style=BOLD)
        for name, size in zip(columns, least, strict=True):
            # narrow columns are not broken in favour of wide ones
            table.add_column(
                name, overflow="fold", min_width=size, justify="right" if name in given.numbers else "left"
            )
        for row in rows:
            table.add_row(*(Text(cell.text, cell.style) for cell in row))
        self._console().print(table)

    def _record(self, columns: Sequence[str], row: list[Cell]) -> None:
        """Print one row as words if columns do not fit: the first cell, then each column's name with its cell.

        A name stays on one line with the first word of its cell, and no word is broken.
        """
        from rich.text import Text

        console, room = self._console(), self._columns()
        first, *rest = row
        line = Text.assemble((first.text, BOLD))
        for name, cell in zip(columns[1:], rest, strict=True):
            begin, *more = cell.text.split(" ")
            words = [Text.assemble((word, cell.style)) for word in more]
            for number, piece in enumerate([Text.assemble((f"{name} ", FAINT), (begin, cell.style)), *words]):
                gap = " " if number else "  "
                if line.cell_len + len(gap) + piece.cell_len > room:
                    console.print(line, soft_wrap=True)
                    line, gap = Text(), _HANGING
                line.append(gap)
                line.append_text(piece)
        console.print(line, soft_wrap=True)


class _Lazy(list[Any]):
    """Items that arrive while they are written: json.dump takes only lists."""

    def __init__(self, items: Iterator[Any]) -> None:
        first = next(items, self)
        super().__init__([] if first is self else [first])
        self._rest = items

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(super().__iter__(), self._rest)


class _Packed:
    """Collects compressed text, so that an error leaves no half of it on standard output."""

    def __init__(self) -> None:
        self._packing = zlib.compressobj(1)
        self._packed: list[bytes] = []

    def write(self, text: str) -> None:
        if packed := self._packing.compress(text.encode()):
            self._packed.append(packed)

    def texts(self) -> Iterator[str]:
        unpacking = zlib.decompressobj()
        for each in (*self._packed, self._packing.flush()):
            yield unpacking.decompress(each).decode()


def shown(text: str) -> str:
    """Mask secrets, and remove characters that control a terminal."""
    return plain(masked(text))


def _shown_rows(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the texts of each row as `shown`. Many rows at a time are searched for secrets, which nearly none has."""
    for begin in range(0, len(rows), _ROWS):
        texts = [[each if isinstance(each, str) else each.text for each in row] for row in rows[begin : begin + _ROWS]]
        every = [*itertools.chain.from_iterable(texts)]
        whole = "\n".join(every)
        is_clean = all(map(str.isprintable, every)) and masked(whole) == whole
        yield from texts if is_clean else ([*map(shown, row)] for row in texts)


def _widths(rows: Sequence[Sequence[Cell]], *, of_words: bool = False) -> list[int]:
    """Return the width of each column's widest cell, or of its widest word."""

    def wide(text: str) -> int:
        return max(map(width, text.split(" "))) if of_words else width(text)

    return [max(map(wide, texts)) for texts in zip(*([cell.text for cell in row] for row in rows), strict=True)]


def _padded(text: str, shape: tuple[int, bool]) -> str:
    """shape: the column's width, and whether it has numbers."""
    size, is_number = shape
    spaces = " " * (size - width(text))
    return spaces + text if is_number else text + spaces


def _cell(given: str | Cell) -> Cell:
    found = given if isinstance(given, Cell) else Cell(given)
    return Cell(shown(found.text), found.style)
