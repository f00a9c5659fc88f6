"""A terminal's text with its colours as an SVG, in a light and a dark form; and the text of such an SVG again. Pure.

rich draws it. What it would fetch from elsewhere (a font) is left out: a page shows pictures without a network.
"""

import html
import io
import re
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

# as GitHub's pages have them
_LIGHT: Final = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (77, 45, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (89, 99, 110),
    ],
    [
        (87, 96, 106),
        (164, 14, 38),
        (26, 127, 55),
        (99, 60, 1),
        (33, 139, 255),
        (164, 117, 249),
        (49, 146, 170),
        (36, 41, 47),
    ],
)
THEMES: Final = {"light": _LIGHT, "dark": DIMMED_MONOKAI}
_FONT: Final = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_PIECE: Final = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
# how wide one is in rich's drawing
_CHARACTER: Final = 12.2
_FRAME: Final = "rgba(255,255,255,0.35)"
_FAMILY: Final = "Fira Code, monospace"
_FAMILIES: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, Liberation Mono, monospace"


def drawn(text: str, title: str, name: str, theme: str, columns: int) -> str:
    """text: with the terminal's colours. name: of the picture, for the names in it. theme: of THEMES."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text), soft_wrap=False, no_wrap=False, overflow="fold", crop=False)
    svg = console.export_svg(title=title, theme=THEMES[theme], unique_id=f"{name}-{theme}")
    # the frame, which is white on white else
    svg = svg.replace(_FRAME, "rgba(127,127,127,0.5)")
    svg = _COMMENT.sub("", _FONT.sub("", svg)).replace(_FAMILY, _FAMILIES).replace("Fira Code", "monospace")
    return "\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n"


def lines_of(svg: str) -> list[str]:
    """The text of a picture, line by line, each piece in its column."""
    by_height: dict[float, list[tuple[int, str]]] = {}
    for left, height, words in _PIECE.findall(svg):
        text = html.unescape(words).replace("\xa0", " ")
        by_height.setdefault(float(height), []).append((round(float(left) / _CHARACTER), text))
    return [_line(sorted(found)) for _, found in sorted(by_height.items())]


def _line(pieces: Iterable[tuple[int, str]]) -> str:
    line = ""
    for column, text in pieces:
        line = line.ljust(column) + text
    return line.rstrip()
