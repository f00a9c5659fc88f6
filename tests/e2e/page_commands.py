"""The commands that the documentation tells people to type, one by one: from its blocks, its tables and its sentences.

A block of console output is none (its commands were run to make it), and neither is a program's name without a word behind it.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = r"(?:[A-Z_]+=\S+ )*(?:kubectl|helm|make|kind|containerd|nodedevice-(?:agent|operator)|\.venv/bin/\S+)"
# from a fence to the next, indented alike: inside a list, too
_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_IN_A_SENTENCE: Final = re.compile(rf"`({_PROGRAM}\s[^`]+)`")
# a block without fences is indented by four
_ALONE: Final = re.compile(rf"^    ({_PROGRAM} .+)$", re.MULTILINE)
_BEGINS_WITH_A_PROGRAM: Final = re.compile(rf"^{_PROGRAM} ", re.MULTILINE)
_HERE_DOCUMENT: Final = re.compile(r"<<'(\w+)'$", re.MULTILINE)


@dataclass(frozen=True)
class PageCommand:
    """page: relative to the project's root. text: as it stands there, comments included; one command, on one line or more.

    A block that sets a variable for its other lines is one command, too.
    """

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        return _words(self.text)

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)[:60]}"


def page_commands() -> list[PageCommand]:
    """Of README, CONTRIBUTING, the chart's README and docs/, in their order; each once for a page."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "charts/nodedevice/README.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]
    found = [PageCommand(str(page.relative_to(ROOT)), text) for page in pages for text in texts(page.read_text())]
    return list(dict.fromkeys(found))


def texts(content: str) -> Iterator[str]:
    """The commands of a page, or of a part of one: those of its blocks first."""
    for block in _BLOCK.finditer(content):
        # no word about the language may be forgetfulness
        if block["language"] == "sh" or (not block["language"] and _BEGINS_WITH_A_PROGRAM.search(block["text"])):
            yield from _split(re.sub(f"^{block['indent']}", "", block["text"], flags=re.MULTILINE))
    rest = _BLOCK.sub("", content)
    for alone in _ALONE.finditer(rest):
        yield alone[1].strip()
    for inline in _IN_A_SENTENCE.finditer(rest):
        yield " ".join(inline[1].replace("\\|", "|").split())


def _split(block: str) -> Iterator[str]:
    """A command goes on in the next line while a quote or a here-document is open, or after a backslash."""
    if re.match(r"[A-Z_]+=\S+\n", block):
        yield block.strip()
        return
    text = ""
    for line in block.splitlines():
        text = f"{text}\n{line}" if text else line
        if line.endswith("\\") or _is_open(text):
            continue
        if _words(text):
            yield text.strip()
        text = ""
    if text:
        yield text.strip()


def _is_open(text: str) -> bool:
    if begun := _HERE_DOCUMENT.search(text):
        return not text.endswith(f"\n{begun[1]}")
    try:
        _words(text)
    except ValueError:
        return True
    return False


def _words(text: str) -> list[str]:
    """Without the lines of a here-document, which are no shell."""
    begun = _HERE_DOCUMENT.search(text)
    return shlex.split(text[: begun.end()] if begun else text, comments=True)
