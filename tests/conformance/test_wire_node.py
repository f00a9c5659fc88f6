"""The generated stubs of pod resources and plugin registration speak upstream's wire: every service, message and field.

The tables are written from the documented APIs (k8s.io/kubelet/pkg/apis/podresources/{v1,v1alpha1} and pluginregistration/v1),
not from our .proto: what they say is what monitors and plugins in the field were compiled against.
"""

from types import ModuleType
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2 as registration_pb2
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2 as v1_pb2
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2_grpc as v1_pb2_grpc
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2 as alpha_pb2
from nodedevice_api.upstream.kubelet.podresources.v1alpha1 import api_pb2_grpc as alpha_pb2_grpc

# package: its module, and full path on the wire of each method with request and response; none of them streams
SERVICES: dict[str, tuple[ModuleType, dict[str, tuple[str, str]]]] = {
    "v1": (
        v1_pb2,
        {
            "/v1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
            "/v1.PodResourcesLister/GetAllocatableResources": (
                "AllocatableResourcesRequest",
                "AllocatableResourcesResponse",
            ),
            "/v1.PodResourcesLister/Get": ("GetPodResourcesRequest", "GetPodResourcesResponse"),
        },
    ),
    "v1alpha1": (
        alpha_pb2,
        {"/v1alpha1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse")},
    ),
    "pluginregistration": (
        registration_pb2,
        {
            "/pluginregistration.Registration/GetInfo": ("InfoRequest", "PluginInfo"),
            "/pluginregistration.Registration/NotifyRegistrationStatus": (
                "RegistrationStatus",
                "RegistrationStatusResponse",
            ),
        },
    ),
}

# by package and message: name, number and type of each field, as a .proto spells it
MESSAGES: dict[tuple[str, str], set[str]] = {
    ("v1", "AllocatableResourcesRequest"): set(),
    ("v1", "AllocatableResourcesResponse"): {
        "devices = 1: repeated ContainerDevices",
        "cpu_ids = 2: repeated int64",
        "memory = 3: repeated ContainerMemory",
    },
    ("v1", "ListPodResourcesRequest"): set(),
    ("v1", "ListPodResourcesResponse"): {"pod_resources = 1: repeated PodResources"},
    ("v1", "GetPodResourcesRequest"): {"pod_name = 1: string", "pod_namespace = 2: string"},
    ("v1", "GetPodResourcesResponse"): {"pod_resources = 1: PodResources"},
    ("v1", "PodResources"): {
        "name = 1: string",
        "namespace = 2: string",
        "containers = 3: repeated ContainerResources",
        "cpu_ids = 4: repeated int64",
        "memory = 5: repeated ContainerMemory",
    },
    ("v1", "ContainerResources"): {
        "name = 1: string",
        "devices = 2: repeated ContainerDevices",
        "cpu_ids = 3: repeated int64",
        "memory = 4: repeated ContainerMemory",
        "dynamic_resources = 5: repeated DynamicResource",
    },
    ("v1", "ContainerMemory"): {"memory_type = 1: string", "size = 2: uint64", "topology = 3: TopologyInfo"},
    ("v1", "ContainerDevices"): {
        "resource_name = 1: string",
        "device_ids = 2: repeated string",
        "topology = 3: TopologyInfo",
    },
    ("v1", "TopologyInfo"): {"nodes = 1: repeated NUMANode"},
    ("v1", "NUMANode"): {"ID = 1: int64"},
    ("v1", "DynamicResource"): {
        "claim_name = 2: string",
        "claim_namespace = 3: string",
        "claim_resources = 4: repeated ClaimResource",
    },
    ("v1", "ClaimResource"): {
        "cdi_devices = 1: repeated CDIDevice",
        "driver_name = 2: string",
        "pool_name = 3: string",
        "device_name = 4: string",
        "share_id = 5: optional string",
    },
    ("v1", "CDIDevice"): {"name = 1: string"},
    ("v1alpha1", "ListPodResourcesRequest"): set(),
    ("v1alpha1", "ListPodResourcesResponse"): {"pod_resources = 1: repeated PodResources"},
    ("v1alpha1", "PodResources"): {
        "name = 1: string",
        "namespace = 2: string",
        "containers = 3: repeated ContainerResources",
    },
    ("v1alpha1", "ContainerResources"): {"name = 1: string", "devices = 2: repeated ContainerDevices"},
    ("v1alpha1", "ContainerDevices"): {"resource_name = 1: string", "device_ids = 2: repeated string"},
    ("pluginregistration", "PluginInfo"): {
        "type = 1: string",
        "name = 2: string",
        "endpoint = 3: string",
        "supported_versions = 4: repeated string",
    },
    ("pluginregistration", "RegistrationStatus"): {"plugin_registered = 1: bool", "error = 2: string"},
    ("pluginregistration", "RegistrationStatusResponse"): set(),
    ("pluginregistration", "InfoRequest"): set(),
}

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def spelled(field: FieldDescriptor) -> str:
    """A field as the table above spells it."""
    kind = field.message_type.name if field.message_type else SCALARS.get(field.type, f"type {field.type}")
    if field.is_repeated:
        kind = f"repeated {kind}"
    elif field.has_presence and not field.message_type:
        kind = f"optional {kind}"
    return f"{field.name} = {field.number}: {kind}"


@pytest.mark.parametrize("package", SERVICES)
def test_package_and_methods(package: str) -> None:
    module, methods = SERVICES[package]
    assert module.DESCRIPTOR.package == package
    found = {}
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert not method.client_streaming
            assert not method.server_streaming
            found[f"/{service.full_name}/{method.name}"] = (method.input_type.name, method.output_type.name)
    assert found == methods


@pytest.mark.parametrize("package", SERVICES)
def test_no_message_more_or_less(package: str) -> None:
    assert set(SERVICES[package][0].DESCRIPTOR.message_types_by_name) == {m for p, m in MESSAGES if p == package}


@pytest.mark.parametrize(("package", "message"), MESSAGES)
def test_fields(package: str, message: str) -> None:
    descriptor = SERVICES[package][0].DESCRIPTOR.message_types_by_name[message]
    assert {spelled(field) for field in descriptor.fields} == MESSAGES[package, message]


class RecordingChannel:
    """Notes under which path a stub would call, and calls nothing."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def unary_unary(self, method: str, *_: Any, **__: Any) -> None:
        self.paths.add(method)


@pytest.mark.parametrize(
    ("package", "stub"),
    [
        ("v1", v1_pb2_grpc.PodResourcesListerStub),
        ("v1alpha1", alpha_pb2_grpc.PodResourcesListerStub),
        ("pluginregistration", registration_pb2_grpc.RegistrationStub),
    ],
)
def test_stubs_call_the_same_paths(package: str, stub: Any) -> None:
    """The path is a string in the generated stub, beside the descriptor: both have to be right."""
    channel = RecordingChannel()
    stub(channel)
    assert channel.paths == set(SERVICES[package][1])


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        pytest.param(
            v1_pb2.ContainerDevices(
                resource_name="r", device_ids=["d"], topology=v1_pb2.TopologyInfo(nodes=[v1_pb2.NUMANode(ID=1)])
            ),
            b"\x0a\x01r" + b"\x12\x01d" + b"\x1a\x04\x0a\x02\x08\x01",
            id="device on a NUMA node",
        ),
        pytest.param(
            v1_pb2.ContainerDevices(resource_name="r", device_ids=["d"]),
            b"\x0a\x01r" + b"\x12\x01d",
            id="device without topology",
        ),
        pytest.param(
            registration_pb2.PluginInfo(type="t", name="n", endpoint="e", supported_versions=["v1beta1"]),
            b"\x0a\x01t" + b"\x12\x01n" + b"\x1a\x01e" + b"\x22\x07v1beta1",
            id="plugin info",
        ),
        pytest.param(
            registration_pb2.RegistrationStatus(plugin_registered=True, error="x"),
            b"\x08\x01" + b"\x12\x01x",
            id="registration status",
        ),
    ],
)
def test_bytes(message: Any, wire: bytes) -> None:
    """Written by hand, field by field: number and wire type, length, content."""
    assert message.SerializeToString(deterministic=True) == wire
    assert type(message).FromString(wire) == message
