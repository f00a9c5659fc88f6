"""A protobuf message's own fields, counted before anything is parsed: a parser makes an object of each, of some hundred bytes.

Source: the protobuf encoding, tags and wire types.
"""

from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _LENGTH, _GROUP_START, _GROUP_END, _FIXED32 = range(6)
_FIXED = {_FIXED64: 8, _FIXED32: 4, _GROUP_START: 0, _GROUP_END: 0}
_LAST_GROUP_BIT = 63


def beginning(octets: bytes, number: int, most: int) -> bytes:
    """The message up to the `most`th field with this number, that one included; all of it where there are no more.

    What stands in a group counts as well. Raises DecodeError for what is no message.
    """
    position = found = 0
    while position < len(octets):
        tag, position = _varint(octets, position)
        kind = tag & 7
        if kind == _LENGTH:
            size, position = _varint(octets, position)
            position += size
        elif kind == _VARINT:
            _, position = _varint(octets, position)
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise DecodeError(f"no wire type {kind}")
        found += tag >> 3 == number
        if found == most:
            return octets[:position]
    return octets


def _varint(octets: bytes, position: int) -> tuple[int, int]:
    """A number, and where the next field or value begins. Raises DecodeError."""
    value = shift = 0
    while position < len(octets) and shift <= _LAST_GROUP_BIT:
        octet = octets[position]
        position += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, position
        shift += 7
    raise DecodeError("a number does not end")
