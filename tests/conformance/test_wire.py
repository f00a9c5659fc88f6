"""The generated device plugin stubs speak upstream's wire: every service, method, message and field of v1beta1.

The tables are written from the documented API (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), not from our .proto: what they say
is what every plugin in the field was compiled against. A field more is as wrong as a field less.
"""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

# full path on the wire: request, response, whether the response is a stream; no request is one
METHODS = {
    "/v1beta1.Registration/Register": ("RegisterRequest", "Empty", False),
    "/v1beta1.DevicePlugin/GetDevicePluginOptions": ("Empty", "DevicePluginOptions", False),
    "/v1beta1.DevicePlugin/ListAndWatch": ("Empty", "ListAndWatchResponse", True),
    "/v1beta1.DevicePlugin/GetPreferredAllocation": (
        "PreferredAllocationRequest",
        "PreferredAllocationResponse",
        False,
    ),
    "/v1beta1.DevicePlugin/Allocate": ("AllocateRequest", "AllocateResponse", False),
    "/v1beta1.DevicePlugin/PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse", False),
}

# message: name, number and type of each field, as a .proto spells it
MESSAGES = {
    "DevicePluginOptions": {"pre_start_required = 1: bool", "get_preferred_allocation_available = 2: bool"},
    "RegisterRequest": {
        "version = 1: string",
        "endpoint = 2: string",
        "resource_name = 3: string",
        "options = 4: DevicePluginOptions",
    },
    "Empty": set(),
    "ListAndWatchResponse": {"devices = 1: repeated Device"},
    "TopologyInfo": {"nodes = 1: repeated NUMANode"},
    "NUMANode": {"ID = 1: int64"},
    "Device": {"ID = 1: string", "health = 2: string", "topology = 3: TopologyInfo"},
    "PreStartContainerRequest": {"devices_ids = 1: repeated string"},
    "PreStartContainerResponse": set(),
    "PreferredAllocationRequest": {"container_requests = 1: repeated ContainerPreferredAllocationRequest"},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs = 1: repeated string",
        "must_include_deviceIDs = 2: repeated string",
        "allocation_size = 3: int32",
    },
    "PreferredAllocationResponse": {"container_responses = 1: repeated ContainerPreferredAllocationResponse"},
    "ContainerPreferredAllocationResponse": {"deviceIDs = 1: repeated string"},
    "AllocateRequest": {"container_requests = 1: repeated ContainerAllocateRequest"},
    "ContainerAllocateRequest": {"devices_ids = 1: repeated string"},
    "AllocateResponse": {"container_responses = 1: repeated ContainerAllocateResponse"},
    "ContainerAllocateResponse": {
        "envs = 1: map<string, string>",
        "mounts = 2: repeated Mount",
        "devices = 3: repeated DeviceSpec",
        "annotations = 4: map<string, string>",
        "cdi_devices = 5: repeated CDIDevice",
    },
    "Mount": {"container_path = 1: string", "host_path = 2: string", "read_only = 3: bool"},
    "DeviceSpec": {"container_path = 1: string", "host_path = 2: string", "permissions = 3: string"},
    "CDIDevice": {"name = 1: string"},
}

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}


def plain_type(field: FieldDescriptor) -> str:
    """Type of a field without its label; a scalar that the wire does not use is named by its number."""
    if field.message_type is not None:
        return field.message_type.name
    return SCALARS.get(field.type, f"type {field.type}")


def spelled(field: FieldDescriptor) -> str:
    """A field as the table above spells it."""
    kind = plain_type(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        kind = f"map<{plain_type(key)}, {plain_type(value)}>"
    elif field.is_repeated:
        kind = f"repeated {kind}"
    return f"{field.name} = {field.number}: {kind}"


def generated_methods() -> dict[str, MethodDescriptor]:
    services = api_pb2.DESCRIPTOR.services_by_name.values()
    return {f"/{service.full_name}/{method.name}": method for service in services for method in service.methods}


def test_package() -> None:
    assert api_pb2.DESCRIPTOR.package == "v1beta1"


def test_no_method_more_or_less() -> None:
    assert set(generated_methods()) == set(METHODS)


@pytest.mark.parametrize("path", METHODS)
def test_method(path: str) -> None:
    method = generated_methods()[path]
    actual = (method.input_type.name, method.output_type.name, method.server_streaming)
    assert actual == METHODS[path]
    assert not method.client_streaming


def test_no_message_more_or_less() -> None:
    assert set(api_pb2.DESCRIPTOR.message_types_by_name) == set(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_fields(message: str) -> None:
    descriptor = api_pb2.DESCRIPTOR.message_types_by_name[message]
    assert {spelled(field) for field in descriptor.fields} == MESSAGES[message]
    # proto3's optional and oneof would change what an absent field means
    assert not descriptor.oneofs


class RecordingChannel(grpc.Channel):
    """Notes under which path a stub would call, and calls nothing."""

    def __init__(self) -> None:
        self.paths: dict[str, bool] = {}

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        self.paths[method] = False

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Any:
        self.paths[method] = True

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{method} streams its request")

    stream_stream = stream_unary

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool | None = False) -> None:
        raise AssertionError("a stub subscribes to nothing")

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        raise AssertionError("a stub subscribes to nothing")

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> "RecordingChannel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_stubs_call_the_same_paths() -> None:
    """The path is a string in the generated stub, beside the descriptor: both have to be right."""
    channel = RecordingChannel()
    api_pb2_grpc.RegistrationStub(channel)
    api_pb2_grpc.DevicePluginStub(channel)
    assert channel.paths == {path: streams for path, (_, _, streams) in METHODS.items()}


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        pytest.param(
            api_pb2.Device(ID="d", health="Healthy", topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=1)])),
            b"\x0a\x01d" + b"\x12\x07Healthy" + b"\x1a\x04\x0a\x02\x08\x01",
            id="device",
        ),
        pytest.param(
            api_pb2.ContainerAllocateResponse(
                envs={"K": "V"},
                devices=[api_pb2.DeviceSpec(container_path="/c", host_path="/h", permissions="rw")],
                cdi_devices=[api_pb2.CDIDevice(name="v/c=d")],
            ),
            b"\x0a\x06\x0a\x01K\x12\x01V" + b"\x1a\x0c\x0a\x02/c\x12\x02/h\x1a\x02rw" + b"\x2a\x07\x0a\x05v/c=d",
            id="answer to Allocate",
        ),
        pytest.param(
            api_pb2.Mount(container_path="/c", host_path="/h", read_only=True),
            b"\x0a\x02/c\x12\x02/h\x18\x01",
            id="mount: the container's path comes first",
        ),
    ],
)
def test_bytes(message: Any, wire: bytes) -> None:
    """Written by hand, field by field: number and wire type, length, content."""
    assert message.SerializeToString(deterministic=True) == wire
    assert type(message).FromString(wire) == message
