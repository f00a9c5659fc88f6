"""The commands that the documentation tells people to type, one by one: from its ```sh blocks, and from its tables."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# a row of a table whose cell is a command and nothing else
_CELL: Final = re.compile(r"\| `((?:kubectl|helm|nodedevice-\w+|\.venv/bin/\S+) [^`]*)` \|")


@dataclass(frozen=True)
class PageCommand:
    """page: relative to the project's root. text: as it stands there, comments included; one command, on one line or more."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)[:60]}"


def page_commands() -> list[PageCommand]:
    """Of README, CONTRIBUTING, the chart's README and docs/, in their order."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "charts/nodedevice/README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    return [PageCommand(str(page.relative_to(ROOT)), text) for page in pages for text in _texts(page.read_text())]


def _texts(content: str) -> Iterator[str]:
    for block in _BLOCK.finditer(content):
        yield from _split(block[1])
    for cell in _CELL.finditer(content):
        yield cell[1].replace("\\|", "|")


def _split(block: str) -> Iterator[str]:
    """A command goes on in the next line while a quote is open, or after a backslash."""
    text = ""
    for line in block.splitlines():
        text = f"{text}\n{line}" if text else line
        if line.endswith("\\") or _is_open(text):
            continue
        if shlex.split(text, comments=True):
            yield text.strip()
        text = ""
    if text:
        yield text.strip()


def _is_open(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False
