"""Cuts JSON that is nested too deep, as decoders call themselves for each level. Pure."""

import re
from itertools import accumulate
from typing import Final

# Objects of Kubernetes have some 20 levels, managedFields included.
DEEPEST: Final = 64

# Brackets within strings do not count. An unclosed string reaches to the end of the text. Possessive repeats try nothing twice, so
# that the time is proportional to the text.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
# each place where the depth changes, and whole strings
_TOKEN: Final = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_QUOTE: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_CHANGES: Final = [(octet in b"[{") - (octet in b"]}") for octet in range(256)]
_ALL_ELSE: Final = bytes(octet for octet, change in enumerate(_CHANGES) if not change)
_ONE_KIND: Final = bytes.maketrans(b"[]", b"{}")
_NULL: Final = b"null"
# Of more of them, each level would take a millisecond of its own.
_FEW_BRACKETS: Final = 64 * 1024


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
    """This takes a tenth of the time of the search for places."""
    if (most := data.count(b"[") + data.count(b"{")) <= DEEPEST:
        return most
    # Without escapes, every second piece between quotes is a string. Outside of strings a backslash is invalid: the decoder
    # stops there, and the depth before it is right.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    brackets = rest = b"".join(plain.split(b'"')[::2]).translate(_ONE_KIND, _ALL_ELSE)
    for depth in range(DEEPEST + 1) if len(brackets) <= _FEW_BRACKETS else ():
        if not rest:
            return depth
        # without the innermost level
        rest = rest.replace(b"{}", b"")
    # too many, too deep, or invalid
    return max(accumulate(map(_CHANGES.__getitem__, brackets)), default=0)
