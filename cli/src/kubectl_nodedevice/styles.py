"""Colours by what they say, as rich names them. Pure."""

from typing import Final

PLAIN: Final = ""
GOOD: Final = "green"
BAD: Final = "red"
HELD: Final = "cyan"
WARN: Final = "yellow"
FAINT: Final = "bright_black"
BOLD: Final = "bold"
