"""The Registration service on kubelet.sock: where device plugins announce themselves.

Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go. A Register call is answered only after the plugin
has been dialled and has told its options.
On purpose unlike the kubelet: a socket that was removed is made anew, and plugins that watch the directory register again; one
that another process put in its place is left alone, said, and made ours again when that process has ended.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_registration
from nodedevice_agent.deviceplugin.rejections import Refusals
from nodedevice_agent.errors import DirectoryServed, PluginFailed, SettingsError
from nodedevice_agent.lib.unix_sockets import grpc_target, is_served

log = logging.getLogger(__name__)

# (resource name, socket file name); raises PluginFailed
Connect = Callable[[str, str], Awaitable[None]]

LOOK_SECONDS = 1.0
# No longer than the socket's own name. The library takes away whatever socket it finds where it binds, and once more when it
# ends; so it binds here, and the name that plugins know is given to what it made.
_BOUND_AS = ".kubelet.new"
_SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name
_STATUS = {
    RegistrationRejected: grpc.StatusCode.INVALID_ARGUMENT,
    PluginFailed: grpc.StatusCode.FAILED_PRECONDITION,
}


class RegistrationServer:
    """Serves until stopped. The socket is mode 0600: who may write it may offer devices."""

    def __init__(self, socket: Path, connect: Connect, refusals: Refusals) -> None:
        self._socket = socket
        self._service = _Registration(connect, refusals)
        self._server: grpc.aio.Server | None = None
        # the served socket's file; its inode is not used again while a server listens on it
        self._file: os.stat_result | None = None

    async def start(self) -> None:
        """Serve on a new socket, and no longer on the one before. Raises SettingsError when it cannot be made, DirectoryServed."""
        _make_room(self._socket)
        bound = self._socket.with_name(_BOUND_AS)
        server = self._new_server()
        try:
            server.add_insecure_port(grpc_target(bound))
            os.chmod(bound, 0o600)
            await server.start()
            _rename(bound, self._socket)
            file = os.lstat(self._socket)
        except (RuntimeError, OSError) as exc:
            await server.stop(grace=None)
            raise _unusable(self._socket, str(exc)) from exc
        before, self._server, self._file = self._server, server, file
        if before is not None:
            await before.stop(grace=0.5)

    async def keep(self, hold: Callable[[], None], said: Callable[[str], None]) -> None:
        """See to it that plugins can register, until cancelled.

        hold: makes sure that the directory is ours, raises DirectoryServed and SettingsError. said: told what is in the way,
        or "" when nothing is any more.
        """
        before = ""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            problem = await self._put_right(hold)
            if problem != before:
                said(problem)
                if problem:
                    log.error("device plugins cannot register", extra={"error": problem})
            before = problem

    async def _put_right(self, hold: Callable[[], None]) -> str:
        """What is in the way; empty when nothing is."""
        try:
            hold()
            if not self._is_there():
                await self.start()
                log.warning("registration socket was gone; made anew", extra={"socket": str(self._socket)})
        except (DirectoryServed, SettingsError) as exc:
            return str(exc)
        return ""

    def _is_there(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(os.lstat(self._socket), self._file)
        except OSError:
            return False

    async def stop(self) -> None:
        if self._is_there():
            self._socket.unlink(missing_ok=True)
        if self._server is not None:
            await self._server.stop(grace=0.5)

    def _new_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * 1024)])
        # not by the generated function: its way to read a request raises on one that is no message, with a traceback
        register = grpc.unary_unary_rpc_method_handler(
            self._service.Register, _request, api_pb2.Empty.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(_SERVICE, {"Register": register})
        server.add_generic_rpc_handlers((service,))
        return server


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
                raise RegistrationRejected(
                    "Message", "the request is no RegisterRequest of the device plugin API v1beta1"
                )
            check_registration(request.version, request.resource_name, request.endpoint)
            await self._connect(request.resource_name, request.endpoint)
        except (RegistrationRejected, PluginFailed) as exc:
            self._refusals.add(exc.reason if isinstance(exc, RegistrationRejected) else exc.call, exc)
            await context.abort(_STATUS[type(exc)], str(exc))
        return api_pb2.Empty()


def _make_room(socket: Path) -> None:
    """Raises SettingsError, DirectoryServed. A socket of the past is removed; anything else is somebody's."""
    if os.path.lexists(socket) and not socket.is_socket():
        raise _unusable(socket, "something that is not a socket is there")
    if is_served(socket):
        raise DirectoryServed(str(socket.parent), f"it answers on {socket.name}")
    socket.unlink(missing_ok=True)


def _rename(bound: Path, socket: Path) -> None:
    """Raises OSError, also when somebody's has come there meanwhile."""
    try:
        os.link(bound, socket, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # a file system without hard links
        os.rename(bound, socket)
    else:
        os.unlink(bound)


def _unusable(socket: Path, why: str) -> SettingsError:
    return SettingsError(
        f"--plugin-dir {socket.parent}: {socket.name} cannot be made: {why}; remove it, or give another directory"
    )


def _request(octets: bytes) -> api_pb2.RegisterRequest | None:
    try:
        return api_pb2.RegisterRequest.FromString(octets)
    except DecodeError:
        return None
