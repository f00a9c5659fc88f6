"""Where the fields of an encoded protobuf message are, without decoding it.

A parser makes an object of some hundred bytes of each field, in one call during which no other thread runs. So long messages are
counted first, and parsed in slices. Source: the protobuf encoding, tags and wire types.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _LENGTH, _GROUP_START, _GROUP_END, _FIXED32 = range(6)
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4, _GROUP_START: 0, _GROUP_END: 0}
_LAST_GROUP_BIT: Final = 63


def fields(octets: bytes, number: int) -> Iterator[tuple[int, int, int]]:
    """Of each field with this number: where it begins, where its content begins, and where it ends. Fields of groups count too.

    Raises DecodeError for an invalid message.
    """
    begin, end = 0, len(octets)
    # of a short field of that number, which has one octet each for tag and length
    short = number << 3 | _LENGTH
    while begin < end:
        if octets[begin] == short and begin + 1 < end and (size := octets[begin + 1]) < 0x80:
            following = begin + 2 + size
            yield begin, begin + 2, following
            begin = following
            continue
        tag, position = _varint(octets, begin)
        kind, content = tag & 7, position
        if kind == _LENGTH:
            size, content = _varint(octets, position)
            position = content + size
        elif kind == _VARINT:
            _, position = _varint(octets, position)
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise DecodeError(f"invalid wire type {kind}")
        if tag >> 3 == number:
            yield begin, content, position
        begin = position


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
