"""Responses to Allocate that a checkpoint holds, decoded when it is restored."""

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, DeviceFile, Mount
from nodedevice_agent.devicemanager.state import Checkpoint
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

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
        (Mount("/lib/gpu", "/opt/gpu", True),),
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
