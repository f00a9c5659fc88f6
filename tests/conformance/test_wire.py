"""The generated stubs speak upstream's wire: every service, method, message, field and enum of what both sides exchange.

The declarations are written from the documented APIs (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1, podresources/{v1,v1alpha1},
pluginregistration/v1; containerd/nri pkg/api/api.proto @ v0.12, containerd/ttrpc request.proto @ v1.2), not from our .proto: what
they declare is what plugins, monitors and runtimes in the field were compiled against. A field more is as wrong as a field less.
NRI's have only what is used here: a peer's other fields are ignored, which a test below holds.
"""

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2 as plugin_pb2
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2_grpc as plugin_grpc
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2 as resources_pb2
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2_grpc as resources_grpc
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as resources_alpha_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2_grpc as resources_alpha_grpc
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2 as nri_pb2
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

# by package: its module, and its declarations as a .proto spells them
WIRE: Final[dict[str, tuple[ModuleType, str]]] = {
    "v1beta1": (
        plugin_pb2,
        """
rpc Registration.Register(RegisterRequest) returns (Empty)
rpc DevicePlugin.GetDevicePluginOptions(Empty) returns (DevicePluginOptions)
rpc DevicePlugin.ListAndWatch(Empty) returns (stream ListAndWatchResponse)
rpc DevicePlugin.GetPreferredAllocation(PreferredAllocationRequest) returns (PreferredAllocationResponse)
rpc DevicePlugin.Allocate(AllocateRequest) returns (AllocateResponse)
rpc DevicePlugin.PreStartContainer(PreStartContainerRequest) returns (PreStartContainerResponse)
message DevicePluginOptions { bool pre_start_required = 1; bool get_preferred_allocation_available = 2 }
message RegisterRequest { string version = 1; string endpoint = 2; string resource_name = 3;
  DevicePluginOptions options = 4 }
message Empty {}
message ListAndWatchResponse { repeated Device devices = 1 }
message TopologyInfo { repeated NUMANode nodes = 1 }
message NUMANode { int64 ID = 1 }
message Device { string ID = 1; string health = 2; TopologyInfo topology = 3 }
message PreStartContainerRequest { repeated string devices_ids = 1 }
message PreStartContainerResponse {}
message PreferredAllocationRequest { repeated ContainerPreferredAllocationRequest container_requests = 1 }
message ContainerPreferredAllocationRequest { repeated string available_deviceIDs = 1;
  repeated string must_include_deviceIDs = 2; int32 allocation_size = 3 }
message PreferredAllocationResponse { repeated ContainerPreferredAllocationResponse container_responses = 1 }
message ContainerPreferredAllocationResponse { repeated string deviceIDs = 1 }
message AllocateRequest { repeated ContainerAllocateRequest container_requests = 1 }
message ContainerAllocateRequest { repeated string devices_ids = 1 }
message AllocateResponse { repeated ContainerAllocateResponse container_responses = 1 }
message ContainerAllocateResponse { map<string, string> envs = 1; repeated Mount mounts = 2;
  repeated DeviceSpec devices = 3; map<string, string> annotations = 4; repeated CDIDevice cdi_devices = 5 }
message Mount { string container_path = 1; string host_path = 2; bool read_only = 3 }
message DeviceSpec { string container_path = 1; string host_path = 2; string permissions = 3 }
message CDIDevice { string name = 1 }
""",
    ),
    "v1": (
        resources_pb2,
        """
rpc PodResourcesLister.List(ListPodResourcesRequest) returns (ListPodResourcesResponse)
rpc PodResourcesLister.GetAllocatableResources(AllocatableResourcesRequest) returns (AllocatableResourcesResponse)
rpc PodResourcesLister.Get(GetPodResourcesRequest) returns (GetPodResourcesResponse)
message AllocatableResourcesRequest {}
message AllocatableResourcesResponse { repeated ContainerDevices devices = 1; repeated int64 cpu_ids = 2;
  repeated ContainerMemory memory = 3 }
message ListPodResourcesRequest {}
message ListPodResourcesResponse { repeated PodResources pod_resources = 1 }
message GetPodResourcesRequest { string pod_name = 1; string pod_namespace = 2 }
message GetPodResourcesResponse { PodResources pod_resources = 1 }
message PodResources { string name = 1; string namespace = 2; repeated ContainerResources containers = 3;
  repeated int64 cpu_ids = 4; repeated ContainerMemory memory = 5 }
message ContainerResources { string name = 1; repeated ContainerDevices devices = 2; repeated int64 cpu_ids = 3;
  repeated ContainerMemory memory = 4; repeated DynamicResource dynamic_resources = 5 }
message ContainerMemory { string memory_type = 1; uint64 size = 2; TopologyInfo topology = 3 }
message ContainerDevices { string resource_name = 1; repeated string device_ids = 2; TopologyInfo topology = 3 }
message TopologyInfo { repeated NUMANode nodes = 1 }
message NUMANode { int64 ID = 1 }
message DynamicResource { string claim_name = 2; string claim_namespace = 3;
  repeated ClaimResource claim_resources = 4 }
message ClaimResource { repeated CDIDevice cdi_devices = 1; string driver_name = 2; string pool_name = 3;
  string device_name = 4; optional string share_id = 5 }
message CDIDevice { string name = 1 }
""",
    ),
    "v1alpha1": (
        resources_alpha_pb2,
        """
rpc PodResourcesLister.List(ListPodResourcesRequest) returns (ListPodResourcesResponse)
message ListPodResourcesRequest {}
message ListPodResourcesResponse { repeated PodResources pod_resources = 1 }
message PodResources { string name = 1; string namespace = 2; repeated ContainerResources containers = 3 }
message ContainerResources { string name = 1; repeated ContainerDevices devices = 2 }
message ContainerDevices { string resource_name = 1; repeated string device_ids = 2 }
""",
    ),
    "pluginregistration": (
        registration_pb2,
        """
rpc Registration.GetInfo(InfoRequest) returns (PluginInfo)
rpc Registration.NotifyRegistrationStatus(RegistrationStatus) returns (RegistrationStatusResponse)
message PluginInfo { string type = 1; string name = 2; string endpoint = 3; repeated string supported_versions = 4 }
message RegistrationStatus { bool plugin_registered = 1; string error = 2 }
message RegistrationStatusResponse {}
message InfoRequest {}
""",
    ),
    "nri.pkg.api.v1alpha1": (
        nri_pb2,
        """
rpc Runtime.RegisterPlugin(RegisterPluginRequest) returns (Empty)
rpc Plugin.Configure(ConfigureRequest) returns (ConfigureResponse)
rpc Plugin.Synchronize(SynchronizeRequest) returns (SynchronizeResponse)
rpc Plugin.RunPodSandbox(RunPodSandboxRequest) returns (RunPodSandboxResponse)
rpc Plugin.StopPodSandbox(StopPodSandboxRequest) returns (StopPodSandboxResponse)
rpc Plugin.RemovePodSandbox(RemovePodSandboxRequest) returns (RemovePodSandboxResponse)
rpc Plugin.CreateContainer(CreateContainerRequest) returns (CreateContainerResponse)
rpc Plugin.PostStartContainer(PostStartContainerRequest) returns (PostStartContainerResponse)
rpc Plugin.StopContainer(StopContainerRequest) returns (StopContainerResponse)
rpc Plugin.RemoveContainer(RemoveContainerRequest) returns (RemoveContainerResponse)
rpc Plugin.ValidateContainerAdjustment(ValidateContainerAdjustmentRequest) returns (ValidateContainerAdjustmentResponse)
rpc Plugin.Shutdown(Empty) returns (Empty)
rpc Plugin.StateChange(StateChangeEvent) returns (Empty)
message RegisterPluginRequest { string plugin_name = 1; string plugin_idx = 2; string NRI_version = 3 }
message ConfigureRequest { string config = 1; string runtime_name = 2; string runtime_version = 3;
  int64 registration_timeout = 4; int64 request_timeout = 5; string NRI_version = 6 }
message ConfigureResponse { int32 events = 2; FailurePolicy failure_policy = 3 }
message FailurePolicy { bool fail_request = 1; bool keep_connected = 2 }
message SynchronizeRequest { repeated PodSandbox pods = 1; repeated Container containers = 2; bool more = 3 }
message SynchronizeResponse { repeated ContainerUpdate update = 1; bool more = 2 }
message RunPodSandboxRequest { PodSandbox pod = 1 }
message RunPodSandboxResponse {}
message StopPodSandboxRequest { PodSandbox pod = 1 }
message StopPodSandboxResponse {}
message RemovePodSandboxRequest { PodSandbox pod = 1 }
message RemovePodSandboxResponse {}
message CreateContainerRequest { PodSandbox pod = 1; Container container = 2 }
message CreateContainerResponse { ContainerAdjustment adjust = 1 }
message PostStartContainerRequest { PodSandbox pod = 1; Container container = 2 }
message PostStartContainerResponse {}
message StopContainerRequest { PodSandbox pod = 1; Container container = 2 }
message StopContainerResponse { repeated ContainerUpdate update = 1 }
message RemoveContainerRequest { PodSandbox pod = 1; Container container = 2 }
message RemoveContainerResponse {}
message StateChangeEvent { Event event = 1; PodSandbox pod = 2; Container container = 3 }
message ValidateContainerAdjustmentRequest { PodSandbox pod = 1; Container container = 2;
  ContainerAdjustment adjust = 3; repeated PluginInstance plugins = 6 }
message PluginInstance { string name = 1; string index = 2 }
message ValidateContainerAdjustmentResponse { bool reject = 1; string reason = 2 }
message Empty {}
message PodSandbox { string id = 1; string name = 2; string uid = 3; string namespace = 4;
  map<string, string> labels = 5; map<string, string> annotations = 6 }
message Container { string id = 1; string pod_sandbox_id = 2; string name = 3; ContainerState state = 4;
  map<string, string> labels = 5; map<string, string> annotations = 6; repeated string args = 7; repeated string env = 8;
  repeated Mount mounts = 9; LinuxContainer linux = 11; uint32 pid = 12; repeated CDIDevice CDI_devices = 20; User user = 21 }
message User { uint32 uid = 1; uint32 gid = 2; repeated uint32 additional_gids = 3 }
message Mount { string destination = 1; string type = 2; string source = 3; repeated string options = 4 }
message LinuxContainer { repeated LinuxDevice devices = 2; LinuxResources resources = 3 }
message LinuxDevice { string path = 1; string type = 2; int64 major = 3; int64 minor = 4;
  OptionalFileMode file_mode = 5; OptionalUInt32 uid = 6; OptionalUInt32 gid = 7 }
message LinuxDeviceCgroup { bool allow = 1; string type = 2; OptionalInt64 major = 3; OptionalInt64 minor = 4;
  string access = 5 }
message CDIDevice { string name = 1 }
message LinuxResources { repeated LinuxDeviceCgroup devices = 7 }
message ContainerAdjustment { map<string, string> annotations = 2; repeated Mount mounts = 3; repeated KeyValue env = 4;
  LinuxContainerAdjustment linux = 6; repeated CDIDevice CDI_devices = 8; repeated string args = 9 }
message LinuxContainerAdjustment { repeated LinuxDevice devices = 1; LinuxResources resources = 2 }
message ContainerUpdate { string container_id = 1 }
message KeyValue { string key = 1; string value = 2 }
message OptionalUInt32 { uint32 value = 1 }
message OptionalInt64 { int64 value = 1 }
message OptionalFileMode { uint32 value = 1 }
enum Event { UNKNOWN = 0; RUN_POD_SANDBOX = 1; STOP_POD_SANDBOX = 2; REMOVE_POD_SANDBOX = 3; CREATE_CONTAINER = 4;
  POST_CREATE_CONTAINER = 5; START_CONTAINER = 6; POST_START_CONTAINER = 7; UPDATE_CONTAINER = 8;
  POST_UPDATE_CONTAINER = 9; STOP_CONTAINER = 10; REMOVE_CONTAINER = 11; UPDATE_POD_SANDBOX = 12;
  POST_UPDATE_POD_SANDBOX = 13; VALIDATE_CONTAINER_ADJUSTMENT = 14; LAST = 15 }
enum ContainerState { CONTAINER_UNKNOWN = 0; CONTAINER_CREATED = 1; CONTAINER_PAUSED = 2; CONTAINER_RUNNING = 3;
  CONTAINER_STOPPED = 4 }
""",
    ),
    "ttrpc": (
        ttrpc_pb2,
        """
message Status { int32 code = 1; string message = 2 }
message Request { string service = 1; string method = 2; bytes payload = 3; int64 timeout_nano = 4;
  repeated KeyValue metadata = 5 }
message Response { Status status = 1; bytes payload = 2 }
message KeyValue { string key = 1; string value = 2 }
""",
    ),
}
STUBS: Final = {
    "v1beta1": (plugin_grpc.RegistrationStub, plugin_grpc.DevicePluginStub),
    "v1": (resources_grpc.PodResourcesListerStub,),
    "v1alpha1": (resources_alpha_grpc.PodResourcesListerStub,),
    "pluginregistration": (registration_grpc.RegistrationStub,),
}


def declared(package: str) -> dict[str, set[str]]:
    """By `message Name`, `enum Name` or `rpc Service.Method`: its fields, its values, or its request and response."""
    found = {}
    for line in re.sub(r"\n +", " ", WIRE[package][1].strip()).splitlines():
        name, inner = re.split(r" \{|(?=\()", line, maxsplit=1)
        found[name] = {part.strip() for part in inner.removesuffix("}").split(";")} - {""}
    return found


def generated(package: str) -> Iterator[tuple[str, set[str]]]:
    """The same, of the generated module."""
    descriptor = WIRE[package][0].DESCRIPTOR
    for service in descriptor.services_by_name.values():
        for method in service.methods:
            sides = (method.client_streaming, method.input_type), (method.server_streaming, method.output_type)
            request, response = ("stream " * streams + message.name for streams, message in sides)
            yield f"rpc {service.name}.{method.name}", {f"({request}) returns ({response})"}
    for message in descriptor.message_types_by_name.values():
        yield f"message {message.name}", {f"{_kind(field)} {field.name} = {field.number}" for field in message.fields}
    for enum in descriptor.enum_types_by_name.values():
        yield f"enum {enum.name}", {f"{value.name} = {value.number}" for value in enum.values}


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{_plain(key)}, {_plain(value)}>"
    # proto3's optional and oneof change what an absent field means
    label = "repeated " if field.is_repeated else "optional " if field.containing_oneof is not None else ""
    return label + _plain(field)


def _plain(field: FieldDescriptor) -> str:
    """Type of a field without its label."""
    named = field.message_type or field.enum_type
    return str(named.name) if named is not None else _SCALARS[field.type]


_SCALARS: Final = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("string", "bytes", "bool", "int32", "int64", "uint32", "uint64")
}


@pytest.mark.parametrize("package", WIRE)
def test_nothing_more_or_less(package: str) -> None:
    assert WIRE[package][0].DESCRIPTOR.package == package
    assert {name for name, _ in generated(package)} == set(declared(package))


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in WIRE for name in declared(package)])
def test_declaration(package: str, name: str) -> None:
    assert dict(generated(package))[name] == declared(package)[name]


class RecordingChannel:
    """Notes under which path a stub would call, and calls nothing."""

    def __init__(self) -> None:
        self.paths: dict[str, bool] = {}

    def unary_unary(self, method: str, *_: Any, **__: Any) -> None:
        self.paths[method] = False

    def unary_stream(self, method: str, *_: Any, **__: Any) -> None:
        self.paths[method] = True


@pytest.mark.parametrize("package", STUBS)
def test_stubs_call_the_same_paths(package: str) -> None:
    """The path is a string in the generated stub, beside the descriptor: both have to be right."""
    channel: Any = RecordingChannel()
    for stub in STUBS[package]:
        stub(channel)
    methods = {name.split()[1]: sides for name, sides in declared(package).items() if name.startswith("rpc ")}
    wanted = {
        f"/{package}.{name.replace('.', '/')}": "returns (stream" in "".join(sides) for name, sides in methods.items()
    }
    assert channel.paths == wanted


def test_unused_fields_are_ignored() -> None:
    """A container with arguments (7), a process ID (12) and a field that is yet to be invented (99)."""
    container = nri_pb2.Container.FromString(b"\x0a\x02id\x3a\x04true\x60\x2a\x9a\x06\x03new\x1a\x04name")
    assert (container.id, container.name) == ("id", "name")
