"""Where a message is cut: after so many of one field, whatever else is in it; and what is no message is said to be none."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.deviceplugin.message_fields import beginning
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

FIRST = 1


@given(st.integers(0, 20), st.integers(1, 20), st.binary(max_size=300))
def test_what_is_left_is_the_message_with_fewer_of_them(count: int, most: int, stuff: bytes) -> None:
    devices = [api_pb2.Device(ID=str(number), health=stuff.hex()) for number in range(count)]
    whole = api_pb2.ListAndWatchResponse(devices=devices).SerializeToString()
    left = api_pb2.ListAndWatchResponse.FromString(beginning(whole, FIRST, most))
    assert list(left.devices) == devices[:most]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"\x10\x96\x01", id="varint"),
        pytest.param(b"\x11" + bytes(8), id="64 bits"),
        pytest.param(b"\x12\x02ab", id="bytes"),
        pytest.param(b"\x13\x10\x01\x14", id="group"),
        pytest.param(b"\x15" + bytes(4), id="32 bits"),
        pytest.param(b"\x92\x80\x00\x02ab", id="a tag that is longer than it has to be"),
    ],
)
def test_other_fields_are_passed_over(other: bytes) -> None:
    one = b"\x0a\x03\x0a\x01x"
    whole = other + one + other + one + other
    api_pb2.ListAndWatchResponse.FromString(whole)
    assert beginning(whole, FIRST, 3) == whole
    assert beginning(whole, FIRST, 2) == other + one + other + one
    assert beginning(whole, FIRST, 1) == other + one


def test_a_field_is_counted_however_its_tag_is_spelled() -> None:
    spelled = b"\x8a\x80\x00\x00"
    assert len(api_pb2.ListAndWatchResponse.FromString(spelled * 3).devices) == 3
    assert beginning(spelled * 3, FIRST, 2) == spelled * 2


@pytest.mark.parametrize("octets", [b"\x0e", b"\x0f", b"\x80", b"\x0a\x80", b"\x08" + b"\xff" * 11], ids=bytes.hex)
def test_what_is_no_message(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        beginning(octets, FIRST, 1)
