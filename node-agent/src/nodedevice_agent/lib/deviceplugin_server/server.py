"""A DevicePlugin service on a Unix socket of its own, which is put into place whole and taken away by nobody but its owner."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2_grpc

from nodedevice_agent.lib.deviceplugin_server.registration_client import SocketIdentity, socket_identity

_PRIVATE = 0o177
_serial = itertools.count(1)


class CannotServe(Exception):
    """No socket can be made for the plugin; the text names the path and the remedy."""


class Service(api_pb2_grpc.DevicePluginServicer):
    """A DevicePlugin service; `streams` is how many ListAndWatch calls are open, for nobody listening means nobody knows us."""

    streams: int


@asynccontextmanager
async def serving(service: Service, path: Path) -> AsyncIterator[SocketIdentity]:
    """Serve on this path, mode 0600; afterwards the socket is gone, unless it is another's by now. Raises CannotServe."""
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(service, server)
    own_socket = _bind(server, path)
    await server.start()
    try:
        yield own_socket
    finally:
        _remove(path, own_socket)
        await server.stop(None)


def _remove(path: Path, own_socket: SocketIdentity) -> None:
    if socket_identity(path) == own_socket:
        path.unlink(missing_ok=True)


def _bind(server: grpc.aio.Server, path: Path) -> SocketIdentity:
    """Bind under a name of this moment, then move into place.

    A server removes the path it was bound to when it stops, whoever's socket is there by then: so it must never have been
    bound to the one that the next server uses.
    """
    own = path.with_name(f".{os.getpid()}-{next(_serial)}")
    umask = os.umask(_PRIVATE)
    try:
        server.add_insecure_port(f"unix:{own}")
    except RuntimeError as error:
        raise CannotServe(
            f"cannot make a socket in {path.parent}: {error}; is the directory there and writable?"
        ) from None
    finally:
        os.umask(umask)
    try:
        own.rename(path)
    except OSError as error:
        own.unlink(missing_ok=True)
        raise CannotServe(f"cannot move the new socket to {path}: {error.strerror}") from error
    identity = socket_identity(path)
    if identity is None:
        raise CannotServe(f"{path} vanished while it was made")
    return identity
