"""The generated stubs of NRI and ttrpc speak upstream's wire: what is there has upstream's names, numbers and types.

The tables are written from the documented API (containerd/nri pkg/api/api.proto @ v0.12, containerd/ttrpc request.proto @ v1.2),
not from our .proto. NRI's has only what is used here: a peer's other fields are passed over, which a test below holds.
"""

from types import ModuleType

import pytest
from google.protobuf.descriptor import FieldDescriptor
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

TTRPC = {
    "Status": {"code = 1: int32", "message = 2: string"},
    "Request": {
        "service = 1: string",
        "method = 2: string",
        "payload = 3: bytes",
        "timeout_nano = 4: int64",
        "metadata = 5: repeated KeyValue",
    },
    "Response": {"status = 1: Status", "payload = 2: bytes"},
    "KeyValue": {"key = 1: string", "value = 2: string"},
}
NRI = {
    "RegisterPluginRequest": {"plugin_name = 1: string", "plugin_idx = 2: string", "NRI_version = 3: string"},
    "ConfigureRequest": {
        "config = 1: string",
        "runtime_name = 2: string",
        "runtime_version = 3: string",
        "registration_timeout = 4: int64",
        "request_timeout = 5: int64",
        "NRI_version = 6: string",
    },
    "ConfigureResponse": {"events = 2: int32"},
    "SynchronizeRequest": {"pods = 1: repeated PodSandbox", "containers = 2: repeated Container", "more = 3: bool"},
    "SynchronizeResponse": {"update = 1: repeated ContainerUpdate", "more = 2: bool"},
    "RunPodSandboxRequest": {"pod = 1: PodSandbox"},
    "RunPodSandboxResponse": set(),
    "StopPodSandboxRequest": {"pod = 1: PodSandbox"},
    "StopPodSandboxResponse": set(),
    "RemovePodSandboxRequest": {"pod = 1: PodSandbox"},
    "RemovePodSandboxResponse": set(),
    "CreateContainerRequest": {"pod = 1: PodSandbox", "container = 2: Container"},
    "CreateContainerResponse": {"adjust = 1: ContainerAdjustment"},
    "PostStartContainerRequest": {"pod = 1: PodSandbox", "container = 2: Container"},
    "PostStartContainerResponse": set(),
    "StopContainerRequest": {"pod = 1: PodSandbox", "container = 2: Container"},
    "StopContainerResponse": {"update = 1: repeated ContainerUpdate"},
    "RemoveContainerRequest": {"pod = 1: PodSandbox", "container = 2: Container"},
    "RemoveContainerResponse": set(),
    "StateChangeEvent": {"event = 1: Event", "pod = 2: PodSandbox", "container = 3: Container"},
    "ValidateContainerAdjustmentRequest": {
        "pod = 1: PodSandbox",
        "container = 2: Container",
        "adjust = 3: ContainerAdjustment",
        "plugins = 6: repeated PluginInstance",
    },
    "PluginInstance": {"name = 1: string", "index = 2: string"},
    "ValidateContainerAdjustmentResponse": {"reject = 1: bool", "reason = 2: string"},
    "Empty": set(),
    "PodSandbox": {
        "id = 1: string",
        "name = 2: string",
        "uid = 3: string",
        "namespace = 4: string",
        "labels = 5: map<string, string>",
        "annotations = 6: map<string, string>",
    },
    "Container": {
        "id = 1: string",
        "pod_sandbox_id = 2: string",
        "name = 3: string",
        "state = 4: ContainerState",
        "annotations = 6: map<string, string>",
        "env = 8: repeated string",
        "linux = 11: LinuxContainer",
        "pid = 12: uint32",
    },
    "Mount": {"destination = 1: string", "type = 2: string", "source = 3: string", "options = 4: repeated string"},
    "LinuxContainer": {"devices = 2: repeated LinuxDevice"},
    "LinuxDevice": {
        "path = 1: string",
        "type = 2: string",
        "major = 3: int64",
        "minor = 4: int64",
        "file_mode = 5: OptionalFileMode",
        "uid = 6: OptionalUInt32",
        "gid = 7: OptionalUInt32",
    },
    "LinuxDeviceCgroup": {
        "allow = 1: bool",
        "type = 2: string",
        "major = 3: OptionalInt64",
        "minor = 4: OptionalInt64",
        "access = 5: string",
    },
    "CDIDevice": {"name = 1: string"},
    "LinuxResources": {"devices = 7: repeated LinuxDeviceCgroup"},
    "ContainerAdjustment": {
        "annotations = 2: map<string, string>",
        "mounts = 3: repeated Mount",
        "env = 4: repeated KeyValue",
        "linux = 6: LinuxContainerAdjustment",
        "CDI_devices = 8: repeated CDIDevice",
    },
    "LinuxContainerAdjustment": {"devices = 1: repeated LinuxDevice", "resources = 2: LinuxResources"},
    "ContainerUpdate": {"container_id = 1: string"},
    "KeyValue": {"key = 1: string", "value = 2: string"},
    "OptionalUInt32": {"value = 1: uint32"},
    "OptionalInt64": {"value = 1: int64"},
    "OptionalFileMode": {"value = 1: uint32"},
}

ENUMS = {
    "Event": {
        "UNKNOWN": 0,
        "RUN_POD_SANDBOX": 1,
        "STOP_POD_SANDBOX": 2,
        "REMOVE_POD_SANDBOX": 3,
        "CREATE_CONTAINER": 4,
        "POST_CREATE_CONTAINER": 5,
        "START_CONTAINER": 6,
        "POST_START_CONTAINER": 7,
        "UPDATE_CONTAINER": 8,
        "POST_UPDATE_CONTAINER": 9,
        "STOP_CONTAINER": 10,
        "REMOVE_CONTAINER": 11,
        "UPDATE_POD_SANDBOX": 12,
        "POST_UPDATE_POD_SANDBOX": 13,
        "VALIDATE_CONTAINER_ADJUSTMENT": 14,
        "LAST": 15,
    },
    "ContainerState": {
        "CONTAINER_UNKNOWN": 0,
        "CONTAINER_CREATED": 1,
        "CONTAINER_PAUSED": 2,
        "CONTAINER_RUNNING": 3,
        "CONTAINER_STOPPED": 4,
    },
}

# full name of the service: its methods, with request and response
SERVICES = {
    "nri.pkg.api.v1alpha1.Runtime": {"RegisterPlugin": ("RegisterPluginRequest", "Empty")},
    "nri.pkg.api.v1alpha1.Plugin": {
        **{
            name: (f"{name}Request", f"{name}Response")
            for name in (
                *("Configure", "Synchronize", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer"),
                *("PostStartContainer", "StopContainer", "RemoveContainer", "ValidateContainerAdjustment"),
            )
        },
        "Shutdown": ("Empty", "Empty"),
        "StateChange": ("StateChangeEvent", "Empty"),
    },
}

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
}


def spelled(field: FieldDescriptor) -> str:
    """A field as the tables above spell it."""
    if field.enum_type is not None:
        kind = field.enum_type.name
    elif field.message_type is None:
        kind = SCALARS.get(field.type, f"type {field.type}")
    elif field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"{field.name} = {field.number}: map<{SCALARS[key.type]}, {SCALARS[value.type]}>"
    else:
        kind = field.message_type.name
    return f"{field.name} = {field.number}: {'repeated ' if field.is_repeated else ''}{kind}"


MODULES = {"nri.pkg.api.v1alpha1": (api_pb2, NRI), "ttrpc": (ttrpc_pb2, TTRPC)}


@pytest.mark.parametrize("package", MODULES)
def test_package_and_messages(package: str) -> None:
    module, messages = MODULES[package]
    assert module.DESCRIPTOR.package == package
    assert set(module.DESCRIPTOR.message_types_by_name) == set(messages)


@pytest.mark.parametrize(
    ("module", "message", "fields"),
    [
        pytest.param(module, message, fields, id=f"{package}.{message}")
        for package, (module, messages) in MODULES.items()
        for message, fields in messages.items()
    ],
)
def test_fields(module: ModuleType, message: str, fields: set[str]) -> None:
    descriptor = module.DESCRIPTOR.message_types_by_name[message]
    assert {spelled(field) for field in descriptor.fields} == fields
    # proto3's optional and oneof would change what an absent field means
    assert not descriptor.oneofs


@pytest.mark.parametrize("name", ENUMS)
def test_enums(name: str) -> None:
    values = api_pb2.DESCRIPTOR.enum_types_by_name[name].values
    assert {value.name: value.number for value in values} == ENUMS[name]


def test_services() -> None:
    found = {
        service.full_name: {m.name: (m.input_type.name, m.output_type.name) for m in service.methods}
        for service in api_pb2.DESCRIPTOR.services_by_name.values()
    }
    assert found == SERVICES
    assert not ttrpc_pb2.DESCRIPTOR.services_by_name


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (
            ttrpc_pb2.Request(service="s", method="m", payload=b"p", timeout_nano=3),
            b"\x0a\x01s\x12\x01m\x1a\x01p\x20\x03",
        ),
        (ttrpc_pb2.Response(status=ttrpc_pb2.Status(code=12, message="x")), b"\x0a\x05\x08\x0c\x12\x01x"),
        (api_pb2.RegisterPluginRequest(plugin_name="n", plugin_idx="10"), b"\x0a\x01n\x12\x0210"),
        (api_pb2.ConfigureResponse(events=8), b"\x10\x08"),
        (
            api_pb2.CreateContainerResponse(
                adjust=api_pb2.ContainerAdjustment(CDI_devices=[api_pb2.CDIDevice(name="c")])
            ),
            b"\x0a\x05\x42\x03\x0a\x01c",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes(message: ttrpc_pb2.Request, wire: bytes) -> None:
    assert message.SerializeToString() == wire
    assert type(message).FromString(wire) == message


def test_unused_fields_are_ignored() -> None:
    """A container with arguments (7), a process ID (12) and a field that is yet to be invented (99)."""
    container = api_pb2.Container.FromString(b"\x0a\x02id\x3a\x04true\x60\x2a\x9a\x06\x03new\x1a\x04name")
    assert (container.id, container.name) == ("id", "name")
