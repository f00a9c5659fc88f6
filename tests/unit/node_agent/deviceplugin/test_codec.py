"""Responses to Allocate in a checkpoint, decoded when it is restored; and messages that are truncated before parsing."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.deviceplugin.codec import truncated, with_edits
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

DEVICES = 1
EVERYTHING = api_pb2.ContainerAllocateResponse(
    envs={"GPUS": "a"},
    mounts=[api_pb2.Mount(container_path="/lib/gpu", host_path="/opt/gpu", read_only=True)],
    devices=[api_pb2.DeviceSpec(container_path="/dev/gpu0", host_path="/dev/gpu3", permissions="rw")],
    annotations={"gpu.example.com/a": "1"},
    cdi_devices=[api_pb2.CDIDevice(name="example.com/gpu=a")],
).SerializeToString()


def restored(response: bytes | None) -> Allocation:
    stored = Allocation("uid", "main", "example.com/gpu", {-1: ("a",)}, response)
    (found,) = with_edits(Checkpoint((stored,))).allocations
    assert found == stored
    return found


def test_a_stored_response_is_decoded() -> None:
    found = restored(EVERYTHING)
    assert found.edits == ContainerEdits(
        {"GPUS": "a"},
        (ContainerMount("/lib/gpu", "/opt/gpu", True),),
        (DeviceFile("/dev/gpu0", "/dev/gpu3", "rw"),),
        {"gpu.example.com/a": "1"},
        ("example.com/gpu=a",),
    )
    assert found.response_problem == ""


def test_an_invalid_response_has_no_edits_but_a_problem() -> None:
    found = restored(b"\xff")
    assert found.edits is None
    assert found.response_problem == "AllocResp cannot be decoded (1 bytes)"


def test_a_lost_response_has_neither() -> None:
    found = restored(None)
    assert found.edits is None
    assert found.response_problem == ""


@given(st.integers(0, 20), st.integers(1, 20), st.binary(max_size=300))
def test_a_truncated_message_has_fewer_fields(count: int, limit: int, stuff: bytes) -> None:
    devices = [api_pb2.Device(ID=str(number), health=stuff.hex()) for number in range(count)]
    whole = api_pb2.ListAndWatchResponse(devices=devices).SerializeToString()
    left = api_pb2.ListAndWatchResponse.FromString(truncated(whole, DEVICES, limit))
    assert list(left.devices) == devices[:limit]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"\x10\x96\x01", id="varint"),
        pytest.param(b"\x11" + bytes(8), id="64 bits"),
        pytest.param(b"\x12\x02ab", id="bytes"),
        pytest.param(b"\x13\x10\x01\x14", id="group"),
        pytest.param(b"\x15" + bytes(4), id="32 bits"),
        pytest.param(b"\x92\x80\x00\x02ab", id="overlong tag"),
    ],
)
def test_other_fields_are_kept(other: bytes) -> None:
    one = b"\x0a\x03\x0a\x01x"
    whole = other + one + other + one + other
    api_pb2.ListAndWatchResponse.FromString(whole)
    assert truncated(whole, DEVICES, 3) == whole
    assert truncated(whole, DEVICES, 2) == other + one + other + one
    assert truncated(whole, DEVICES, 1) == other + one


def test_an_overlong_tag_counts() -> None:
    spelled = b"\x8a\x80\x00\x00"
    assert len(api_pb2.ListAndWatchResponse.FromString(spelled * 3).devices) == 3
    assert truncated(spelled * 3, DEVICES, 2) == spelled * 2


@pytest.mark.parametrize("octets", [b"\x0e", b"\x0f", b"\x80", b"\x0a\x80", b"\x08" + b"\xff" * 11], ids=bytes.hex)
def test_an_invalid_message_is_not_truncated(octets: bytes) -> None:
    with pytest.raises(DecodeError):
        truncated(octets, DEVICES, 1)
