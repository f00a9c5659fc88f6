"""Where the fields of an encoded protobuf message are, without decoding it.

A parser makes an object of some hundred bytes of each field, in one call during which no other thread runs. So long messages are
counted first, and parsed in slices. Source: the protobuf encoding, tags and wire types.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _LENGTH, _GROUP_START, _GROUP_END, _FIXED32 = range(6)
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}
_LAST_GROUP_BIT: Final = 63


def fields(octets: bytes) -> Iterator[tuple[int, int, int, int]]:
    """For each field: its number, its start, the start of its content, and its end. A group is one field.

    Raises DecodeError for an invalid message.
    """
    begin, end = 0, len(octets)
    while begin < end:
        tag = octets[begin]
        # mostly tag and length have one octet each
        if tag < 0x80 and tag & 7 == _LENGTH and begin + 1 < end and (size := octets[begin + 1]) < 0x80:
            number, content, following = tag >> 3, begin + 2, begin + 2 + size
        else:
            number, content, following = _field(octets, begin)
        if following > end:
            raise DecodeError("truncated field")
        yield number, begin, content, following
        begin = following


def _field(octets: bytes, begin: int) -> tuple[int, int, int]:
    """The number, the start of the content, and the end of a field. Raises DecodeError."""
    tag, content = _varint(octets, begin)
    kind, end = tag & 7, content
    if kind == _LENGTH:
        size, content = _varint(octets, content)
        end = content + size
    elif kind == _VARINT:
        _, end = _varint(octets, content)
    elif kind == _GROUP_START:
        end = _group_end(octets, content)
    elif kind in _FIXED:
        end += _FIXED[kind]
    else:
        raise DecodeError(f"invalid wire type {kind}")
    return tag >> 3, content, end


def _group_end(octets: bytes, position: int) -> int:
    """The end of a group that begins there, with the groups inside it. Raises DecodeError."""
    depth = 1
    while depth:
        tag, following = _varint(octets, position)
        kind = tag & 7
        if kind in (_GROUP_START, _GROUP_END):
            depth += 1 if kind == _GROUP_START else -1
            position = following
        else:
            _, _, position = _field(octets, position)
    return position


def _varint(octets: bytes, position: int) -> tuple[int, int]:
    """A number, and the position after it. Raises DecodeError."""
    value = shift = 0
    while position < len(octets) and shift <= _LAST_GROUP_BIT:
        octet = octets[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, position
        shift += 7
    raise DecodeError("unterminated varint")
