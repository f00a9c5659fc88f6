"""Connects through an HTTP proxy by CONNECT, bounded in time and size. Blocks.

`http.client` reads header lines of a proxy without a limit.
Source: RFC 9110, section 9.3.6.
"""

import socket
import time
from collections.abc import Mapping
from typing import Final

from nodedevice_kube.proxies import Proxy

# of status and headers of the proxy's response
_MOST_HEAD_BYTES: Final = 32 * 1024
_PIECE: Final = 4096
_END: Final = b"\r\n\r\n"


def opened(proxy: Proxy, host: str, port: int, seconds: float | None, user_agent: str) -> socket.socket:
    """Return a socket to that host. seconds: for all of it; None for no limit. Raises OSError, and TimeoutError when it is late."""
    give_up_at = None if seconds is None else time.monotonic() + seconds
    connection = socket.create_connection((proxy.host, proxy.port), seconds)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {"User-Agent": user_agent}
        if proxy.authorization:
            headers["Proxy-Authorization"] = proxy.authorization
        lead(connection, host, port, headers, give_up_at)
        connection.settimeout(seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def lead(connection: socket.socket, host: str, port: int, headers: Mapping[str, str], give_up_at: float | None) -> None:
    """Make the proxy at the other end connect to that host. give_up_at: monotonic seconds. Raises as `opened`."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [
        f"CONNECT {authority} HTTP/1.1",
        *(f"{name}: {value}" for name, value in {"Host": authority, **headers}.items()),
    ]
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    _check(_head(connection, give_up_at))


def _head(connection: socket.socket, give_up_at: float | None) -> bytes:
    head = b""
    while _END not in head:
        if len(head) > _MOST_HEAD_BYTES:
            raise OSError(f"the proxy sends more than {_MOST_HEAD_BYTES >> 10} KiB of headers")
        if give_up_at is not None:
            left = give_up_at - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
        piece = connection.recv(_PIECE)
        if not piece:
            raise ConnectionError("the proxy ended the connection")
        head += piece
    return head


def _check(received: bytes) -> None:
    head, _, more = received.partition(_END)
    version, _, words = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1.") or not words.startswith("2"):
        raise OSError(f"the proxy refused the connection: {words[:200].strip() or 'no status'}")
    if more:
        raise OSError("the proxy sends something before the API server does")
