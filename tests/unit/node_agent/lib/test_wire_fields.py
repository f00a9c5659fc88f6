"""Where the fields of a message are, whatever fields it has."""

import pytest
from google.protobuf.message import DecodeError
from nodedevice_agent.lib.wire_fields import fields
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2


@pytest.mark.parametrize(
    ("other", "number"),
    [
        pytest.param(b"\x10\x96\x01", 2, id="varint"),
        pytest.param(b"\x12\xac\x02" + bytes(300), 2, id="300 bytes"),
        pytest.param(b"\x13\x10\x01\x0a\x01x\x1b\x1c\x14", 2, id="group with a group"),
        pytest.param(b"\x15" + bytes(4), 2, id="32 bits"),
        pytest.param(b"\x92\x80\x00\x02ab", 2, id="overlong tag"),
        *(pytest.param(b"\x10" + b"\xff" * (n - 1) + b"\x01", 2, id=f"varint of {n}") for n in (5, 9, 10)),
    ],
)
def test_other_fields_are_between(other: bytes, number: int) -> None:
    one = b"\x0a\x03\x0a\x01x"
    whole = other + one + other
    api_pb2.ListAndWatchResponse.FromString(whole)
    found = [(number, begin, end) for number, begin, _, end in fields(whole)]
    assert [whole[begin:end] for number, _, begin, end in fields(whole) if number == 1] == [b"\x0a\x01x"]
    first, second = len(other), len(other + one)
    assert found == [(number, 0, first), (1, first, second), (number, second, len(whole))]


@pytest.mark.parametrize(
    "octets", [b"\x0e", b"\x0a\x80", b"\x0a\x02x", b"\x08" + b"\xff" * 11, b"\x13\x10\x01", b"\x11\x00"], ids=bytes.hex
)
def test_an_invalid_message(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        api_pb2.ListAndWatchResponse.FromString(octets)
    with pytest.raises(DecodeError):
        [*fields(octets)]
