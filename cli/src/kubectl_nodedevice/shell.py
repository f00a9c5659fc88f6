"""Writes commands for a shell. Each word reaches the program unchanged, with any characters. Pure."""

import re
import shlex
from typing import Final, NewType

# a command to copy; never wrapped, cut or shortened
Typed = NewType("Typed", str)
NONE: Final = Typed("")
_ESCAPES: Final = {"\\": "\\\\", "'": "\\'"}


def typed(*words: str) -> Typed:
    return Typed(" ".join(map(quoted, words)))


def quoted(word: str) -> str:
    """Quote one word. A word with control characters is written in the form of bash and zsh ($'…'), which shows none of them."""
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character.isprintable():
        return _ESCAPES.get(character, character)
    return re.sub("..", r"\\x\g<0>", character.encode("utf-8", "surrogateescape").hex())
