"""The Registration service on kubelet.sock. A Register call ends only after the plugin has been dialled and has sent its options.

Source: kubelet pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go. Unlike the kubelet: a socket that was removed is created
again, and plugins that watch the directory register again; a socket of another process in its place is reported, and replaced
once that process has ended.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.paced_log import PacedLog
from nodedevice_common.text import shown

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_registration
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import AgentSettingsError, DirectoryServed, PluginFailed
from nodedevice_agent.lib.filesystem import grpc_target, is_absent, is_served, is_socket, remove
from nodedevice_agent.lib.grpc_server import SMALL_REQUEST_BYTES, options

log = logging.getLogger(__name__)

# (resource name, socket file name); raises PluginFailed
Connect = Callable[[str, str], Awaitable[None]]

CHECK_SECONDS = 1.0
# A rejected plugin retries, mostly within a minute: without a retry for so long it has stopped.
_EXPIRY_SECONDS = 600.0
MAX_REJECTIONS = 5
_MAX_CHARACTERS = 400
# No longer than the socket's own name. The library removes any socket at its path when it binds and when it ends. So it
# binds here, and the socket is then renamed to the name that plugins know.
_BOUND_AS = ".kubelet.new"
_SERVICE: str = api_pb2.DESCRIPTOR.services_by_name["Registration"].full_name
_STATUS = {RegistrationRejected: grpc.StatusCode.INVALID_ARGUMENT, PluginFailed: grpc.StatusCode.FAILED_PRECONDITION}


class Rejections:
    """Rejected registrations, counted, logged, and reported on the agent's Lease: the last few, each once.

    An invalid resource name has no NodeDevice that could show it. The operator creates an Event on the Node for each new rejection
    in the Lease. changed: set when there is one that report() has not returned yet.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # time and text of the last occurrence, the latest at the end; by text, or by reason if it is the same for all names
        self._last: dict[str, tuple[float, str]] = {}
        self._lines = PacedLog(log, clock)
        self.changed = asyncio.Event()

    def add(self, reason: str, error: Exception, **where: str) -> None:
        """reason: one word, for the metric."""
        metrics.REGISTRATIONS_REFUSED.labels(reason).inc()
        self._lines.log(logging.ERROR, "registration rejected", reason, **where, error=str(error))
        of_all = error.of_all if isinstance(error, RegistrationRejected) else ""
        # a Lease accepts only UTF-8
        text = shown(of_all or error, _MAX_CHARACTERS)
        key = reason if of_all else text
        if self._last.pop(key, None) is None:
            self.changed.set()
        self._last[key] = self._clock(), text
        if len(self._last) > MAX_REJECTIONS:
            del self._last[next(iter(self._last))]

    def report(self) -> str:
        """The current rejections, one per line, in a stable order. Called with each renewal of the Lease."""
        self.changed.clear()
        self._lines.flush()
        earliest = self._clock() - _EXPIRY_SECONDS
        self._last = {key: (at, text) for key, (at, text) in self._last.items() if at > earliest}
        return "\n".join(sorted(text for _, text in self._last.values()))


class RegistrationServer:
    """Serves until stopped. The socket is mode 0600: a process that may write it may offer devices."""

    def __init__(self, directory: PluginDirectory, connect: Connect, rejections: Rejections) -> None:
        self._directory = directory
        self._socket = directory.registration_socket
        self._connect = connect
        self._rejections = rejections
        self._server: grpc.aio.Server | None = None
        # the served socket's file; its inode is not reused while a server listens on it
        self._file: os.stat_result | None = None
        # the one that was reported last
        self._problem = ""

    async def start(self) -> None:
        """Serve on a new socket instead of an earlier one. Raises AgentSettingsError if it cannot be created, DirectoryServed."""
        _remove_stale(self._socket)
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
        except asyncio.CancelledError:
            await server.stop(grace=None)
            raise
        before, self._server, self._file = self._server, server, file
        if before is not None:
            await before.stop(grace=0.5)

    async def keep(self, on_problem: Callable[[str], None]) -> None:
        """Check and restore the directory's lock and the socket, until cancelled. on_problem: see PluginHost."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            problem = await self._restore()
            if problem != self._problem:
                on_problem(problem)
                if problem:
                    log.error("device plugins cannot register", extra={"error": problem})
            self._problem = problem

    async def _restore(self) -> str:
        """The reason why that is impossible, or ""."""
        try:
            self._directory.hold()
            if not self._exists():
                await self.start()
                log.warning("registration socket was removed; created it again", extra={"socket": str(self._socket)})
        except (DirectoryServed, AgentSettingsError) as exc:
            return str(exc)
        except OSError as exc:
            return str(_unusable(self._socket, exc.strerror or str(exc)))
        return ""

    def _exists(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(os.lstat(self._socket), self._file)
        except OSError as exc:
            return not is_absent(exc)

    async def stop(self) -> None:
        if self._exists():
            remove(self._socket)
        if self._server is not None:
            await self._server.stop(grace=0.5)

    def _new_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=options(SMALL_REQUEST_BYTES))
        # the generated function is not used: its decoder logs a traceback for an invalid message
        register: grpc.RpcMethodHandler[bytes, api_pb2.Empty] = grpc.unary_unary_rpc_method_handler(
            self._register, response_serializer=api_pb2.Empty.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(_SERVICE, {"Register": register})
        server.add_generic_rpc_handlers((service,))
        return server

    async def _register(self, octets: bytes, context: grpc.aio.ServicerContext[bytes, api_pb2.Empty]) -> api_pb2.Empty:
        try:
            request = _decoded(octets)
            check_registration(request.version, request.resource_name, request.endpoint)
            await self._connect(request.resource_name, request.endpoint)
        except (RegistrationRejected, PluginFailed) as exc:
            self._rejections.add(exc.reason if isinstance(exc, RegistrationRejected) else exc.call, exc)
            await context.abort(_STATUS[type(exc)], str(exc))
        return api_pb2.Empty()


def _remove_stale(socket: Path) -> None:
    """Remove the socket if nothing listens on it, and it is one. Raises AgentSettingsError, DirectoryServed."""
    if os.path.lexists(socket) and not is_socket(socket):
        raise _unusable(socket, "the path is not a socket")
    if is_served(socket):
        raise DirectoryServed(str(socket.parent), f"it listens on {socket.name}")
    socket.unlink(missing_ok=True)


def _rename(bound: Path, socket: Path) -> None:
    """Raises OSError, also if the path has been taken meanwhile."""
    try:
        os.link(bound, socket, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # a file system without hard links
        os.rename(bound, socket)
    else:
        os.unlink(bound)


def _unusable(socket: Path, why: str) -> AgentSettingsError:
    return AgentSettingsError(
        f"--plugin-dir {socket.parent}: cannot create {socket.name}: {why}; remove it, or set another directory"
    )


def _decoded(octets: bytes) -> api_pb2.RegisterRequest:
    """Raises RegistrationRejected."""
    try:
        return api_pb2.RegisterRequest.FromString(octets)
    except DecodeError as exc:
        message = "the request is not a RegisterRequest of the device plugin API v1beta1"
        raise RegistrationRejected("Message", message) from exc
