"""Announcing a plugin to the device manager, and telling one socket from the next.

Source: kubelet deviceplugin v1beta1, Registration.
"""

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import RegistrationAsyncStub

API_VERSION = "v1beta1"
MANAGER_SOCKET = "kubelet.sock"

CHANNEL_OPTIONS = (
    # Without it the %-encoded path is the authority, which servers written in Rust and C# refuse.
    ("grpc.default_authority", "localhost"),
    # Channels to one path share a connection otherwise, and a new manager's plugin would still talk to the old one.
    ("grpc.use_local_subchannel_pool", 1),
)


class RegistrationFailed(Exception):
    """The device manager did not take the registration; `code` is the gRPC status, the text what it said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """Tells a socket from another one made later at the same path.

    The inode alone does not: file systems use a number again at once. The modification time is that of its bind and
    stays, whatever is connected to it, chmod-ed or renamed.
    """

    device: int
    inode: int
    made_ns: int


def socket_identity(path: Path) -> SocketIdentity | None:
    """Of the file that is there now; None when there is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return SocketIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)


def is_served(path: Path) -> bool:
    """Whether a living process listens on this socket; the file alone outlives a killed one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # a full backlog (EAGAIN) has somebody behind it too
        return probe.connect_ex(os.fsencode(path)) in (0, errno.EAGAIN, errno.EINPROGRESS)


async def register(
    plugin_dir: Path,
    endpoint: str,
    resource_name: str,
    options: api_pb2.DevicePluginOptions,
    timeout_seconds: float,
) -> None:
    """Announce a plugin that already serves on `endpoint`, a file name in plugin_dir. Raises RegistrationFailed."""
    request = api_pb2.RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=resource_name, options=options
    )
    async with grpc.aio.insecure_channel(f"unix:{plugin_dir / MANAGER_SOCKET}", options=CHANNEL_OPTIONS) as channel:
        stub = cast("RegistrationAsyncStub", api_pb2_grpc.RegistrationStub(channel))
        try:
            await stub.Register(request, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise RegistrationFailed(error.code().name, error.details() or "no reason given") from error
