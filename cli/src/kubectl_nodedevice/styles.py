"""Colours by meaning, in the names of rich. Pure."""

from typing import Final

PLAIN: Final = ""
GOOD: Final = "green"
BAD: Final = "red"
HELD: Final = "cyan"
WARN: Final = "yellow"
FAINT: Final = "bright_black"
BOLD: Final = "bold"
