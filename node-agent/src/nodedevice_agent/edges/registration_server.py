"""The Registration service on kubelet.sock: where device plugins announce themselves.

Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go. A Register call is answered only after the plugin
has been dialled and has told its options.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from nodedevice_agent.core.registration import RegistrationRefused, check_registration
from nodedevice_agent.edges.refusals import Refusals
from nodedevice_agent.edges.unix_sockets import grpc_target
from nodedevice_agent.errors import PluginFailed, SettingsError

# (resource name, socket file name); raises PluginFailed
Connect = Callable[[str, str], Awaitable[None]]

_SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name
_STATUS = {
    RegistrationRefused: grpc.StatusCode.INVALID_ARGUMENT,
    PluginFailed: grpc.StatusCode.FAILED_PRECONDITION,
}


class RegistrationServer:
    """Serves until stopped. The socket is mode 0600: who may write it may offer devices."""

    def __init__(self, socket: Path, connect: Connect, refusals: Refusals) -> None:
        self._socket = socket
        self._is_ours = False
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * 1024)])
        # not by the generated function: its way to read a request raises on one that is no message, with a traceback
        register = grpc.unary_unary_rpc_method_handler(
            _Registration(connect, refusals).Register, _request, api_pb2.Empty.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(_SERVICE, {"Register": register})
        self._server.add_generic_rpc_handlers((service,))

    async def start(self) -> None:
        """Raises SettingsError when the socket cannot be made."""
        _look_for_room(self._socket)
        try:
            self._server.add_insecure_port(grpc_target(self._socket))
            self._is_ours = True
            await self._server.start()
            os.chmod(self._socket, 0o600)
        except (RuntimeError, OSError) as exc:
            raise _unusable(self._socket, str(exc)) from exc

    async def stop(self) -> None:
        await self._server.stop(grace=0.5)
        if self._is_ours:
            self._socket.unlink(missing_ok=True)


class _Registration(api_pb2_grpc.RegistrationServicer):
    def __init__(self, connect: Connect, refusals: Refusals) -> None:
        self._connect = connect
        self._refusals = refusals

    async def Register(
        self,
        request: api_pb2.RegisterRequest | None,
        context: grpc.aio.ServicerContext[api_pb2.RegisterRequest, api_pb2.Empty],
    ) -> api_pb2.Empty:
        try:
            if request is None:
                raise RegistrationRefused(
                    "Message", "the request is no RegisterRequest of the device plugin API v1beta1"
                )
            check_registration(request.version, request.resource_name, request.endpoint)
            await self._connect(request.resource_name, request.endpoint)
        except (RegistrationRefused, PluginFailed) as exc:
            self._refusals.add(exc.reason if isinstance(exc, RegistrationRefused) else exc.call, exc)
            await context.abort(_STATUS[type(exc)], str(exc))
        return api_pb2.Empty()


def _look_for_room(socket: Path) -> None:
    """Raises SettingsError. A socket of the past is replaced; anything else is somebody's."""
    if os.path.lexists(socket) and not socket.is_socket():
        raise _unusable(socket, "something that is not a socket is there")


def _unusable(socket: Path, why: str) -> SettingsError:
    return SettingsError(
        f"--plugin-dir {socket.parent}: {socket.name} cannot be made: {why}; remove it, or give another directory"
    )


def _request(octets: bytes) -> api_pb2.RegisterRequest | None:
    try:
        return api_pb2.RegisterRequest.FromString(octets)
    except DecodeError:
        return None
