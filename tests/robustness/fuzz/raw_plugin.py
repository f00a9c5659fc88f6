"""A device plugin that answers with bytes: those that it is given, message or not. It also announces itself, in the same way."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_api.upstream.kubelet.pluginregistration.v1 import api_pb2 as announcement_pb2

_DEVICE_PLUGIN = "v1beta1.DevicePlugin"
_ANNOUNCEMENT = "pluginregistration.Registration"
_OPTIONS = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))

# of a plugin that also says what v1beta1 does not know
GOOD_LIST = (
    api_pb2.ListAndWatchResponse(
        devices=[
            api_pb2.Device(ID="dev-0", health="Healthy"),
            api_pb2.Device(
                ID="dev-1", health="Unhealthy", topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=1)])
            ),
        ]
    ).SerializeToString()
    + DeviceListDetails(
        devices=[DeviceDetails(ID="dev-2", reason="Xid79", message="reset it", attributes={"model": "H100"})],
        reason="DriverMismatch",
        message="reboot",
    ).SerializeToString()
)
GOOD_ALLOCATION = api_pb2.AllocateResponse(
    container_responses=[
        api_pb2.ContainerAllocateResponse(
            envs={"A": "b"},
            annotations={"c": "d"},
            mounts=[api_pb2.Mount(container_path="/a", host_path="/b", read_only=True)],
            devices=[api_pb2.DeviceSpec(container_path="/dev/a", host_path="/dev/null", permissions="rw")],
        )
    ]
).SerializeToString()
GOOD_PREFERENCE = api_pb2.PreferredAllocationResponse(
    container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=["dev-0"])]
).SerializeToString()
GOOD_OPTIONS = api_pb2.DevicePluginOptions(get_preferred_allocation_available=True).SerializeToString()
GOOD_REGISTRATION = api_pb2.RegisterRequest(
    version="v1beta1", endpoint="raw.sock", resource_name="example.com/raw"
).SerializeToString()
GOOD_INFO = announcement_pb2.PluginInfo(
    type="DevicePlugin", name="example.com/raw", endpoint="/run/raw.sock", supported_versions=["v1beta1"]
).SerializeToString()


class RawPlugin:
    """Serves on `socket` from start() to stop(). Change `answers` at any time; they hold from the next call on."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.answers: dict[str, list[bytes]] = {}
        self.reset()
        self._server: grpc.aio.Server | None = None

    def reset(self) -> None:
        """Sensible answers to everything."""
        self.answers = {
            "GetDevicePluginOptions": [GOOD_OPTIONS],
            "ListAndWatch": [GOOD_LIST],
            "GetPreferredAllocation": [GOOD_PREFERENCE],
            "Allocate": [GOOD_ALLOCATION],
            "PreStartContainer": [b""],
            "GetInfo": [GOOD_INFO],
            "NotifyRegistrationStatus": [b""],
        }

    async def start(self) -> None:
        self._server = grpc.aio.server()
        handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(self._once(method))
            for method in self.answers
            if method != "ListAndWatch"
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(self._all)
        for service in (_DEVICE_PLUGIN, _ANNOUNCEMENT):
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    def _once(self, method: str) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            return self.answers[method][0]

        return answer

    async def _all(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for answer in self.answers["ListAndWatch"]:
            yield answer


async def register(directory: Path, request: bytes) -> None:
    """Send these bytes as a Register request. Raises grpc.aio.AioRpcError when refused."""
    async with grpc.aio.insecure_channel(f"unix:{directory / 'kubelet.sock'}", options=_OPTIONS) as channel:
        call: Any = channel.unary_unary("/v1beta1.Registration/Register")
        await call(request, timeout=60)
