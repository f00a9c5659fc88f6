"""Limits for every gRPC server of the agent: the length of a request, and the time that a connection may be idle.

Any process of the node's root may connect, and a connection costs 15 KiB: three thousand that were never closed were 44 MiB.
"""

from typing import Final

IDLE_MILLISECONDS: Final = 60_000
HANDSHAKE_MILLISECONDS: Final = 10_000
# of a resource name, an endpoint and some flags
SMALL_REQUEST_BYTES: Final = 64 * 1024


def options(request_bytes: int) -> list[tuple[str, int]]:
    """Options of a server. A client whose idle connection ends reconnects by itself at its next call."""
    return [
        ("grpc.max_receive_message_length", request_bytes),
        ("grpc.max_connection_idle_ms", IDLE_MILLISECONDS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
    ]
