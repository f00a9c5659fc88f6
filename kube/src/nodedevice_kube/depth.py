"""Cuts JSON that is nested too deep, as decoders call themselves for each level. Pure."""

import re
from itertools import accumulate
from typing import Final

# Objects of Kubernetes have some 20 levels, managedFields included.
DEEPEST: Final = 64

# Brackets within strings do not count. An unclosed string reaches to the end of the text. Possessive repeats try nothing twice, so
# that the time is proportional to the text.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
# each place where the depth changes, and whole strings
_TOKEN: Final = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_QUOTE: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_CHANGES: Final = [(octet in b"[{") - (octet in b"]}") for octet in range(256)]
_ALL_ELSE: Final = bytes(octet for octet, change in enumerate(_CHANGES) if not change)
_NULL: Final = b"null"


def shallow(data: bytes) -> bytes:
    """Replace values nested deeper than DEEPEST by null. Other bytes stay, valid or not."""
    if _depth(data) <= DEEPEST:
        return data
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        if first == _QUOTE:
            continue
        if first in _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                kept += (data[begin : token.start()], _NULL)
                begin = len(data)
        else:
            if depth == DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join((*kept, data[begin:]))


def _depth(data: bytes) -> int:
    """This takes a third of the time of the search for places."""
    if (most := data.count(b"[") + data.count(b"{")) <= DEEPEST:
        return most
    brackets = _STRINGS.sub(b"", data).translate(None, _ALL_ELSE)
    return max(accumulate(map(_CHANGES.__getitem__, brackets)), default=0)
