"""Limits for every gRPC server of the agent: the length of a request, and the time that a connection may be idle.

Any process of the node's root may connect, and a connection costs 15 KiB: three thousand that were never closed were 44 MiB.
"""

from typing import Final

IDLE_MILLISECONDS: Final = 60_000
HANDSHAKE_MILLISECONDS: Final = 10_000
# of a resource name, an endpoint and some flags
SMALL_REQUEST_BYTES: Final = 64 * 1024
# of a client's channel to a socket
CHANNEL_OPTIONS: Final = (
    # Else the %-encoded path is the authority, which servers written in Go, Rust and C# reject.
    ("grpc.default_authority", "localhost"),
    # Else channels to one path share a connection, and a client would stay connected to a server that was replaced.
    ("grpc.use_local_subchannel_pool", 1),
)


def options(request_bytes: int) -> list[tuple[str, int]]:
    """Options of a server. A client whose idle connection ends reconnects by itself at its next call."""
    return [
        ("grpc.max_receive_message_length", request_bytes),
        ("grpc.max_connection_idle_ms", IDLE_MILLISECONDS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
    ]
