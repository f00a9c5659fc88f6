"""The relay: what goes in at one end comes out at the other, and both learn that a side has ended."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hack.cluster.node.in_cluster_api import RELAY

_HOST = "127.0.0.1"
_BIG = b"x" * 3_000_000


@contextmanager
def _relay(to: int) -> Iterator[int]:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-I", "-S", str(RELAY), _HOST, str(port), _HOST, str(to)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            yield port
        finally:
            process.kill()


def _all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_both_ways_to_the_end() -> None:
    with (
        socket.create_server((_HOST, 0)) as server,
        _relay(server.getsockname()[1]) as port,
        socket.create_connection((_HOST, port)) as client,
    ):
        there, _ = server.accept()
        with there:
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            assert _all(there) == b"question"
            there.sendall(_BIG)
            there.shutdown(socket.SHUT_WR)
            assert _all(client) == _BIG


def test_nobody_there_is_a_closed_connection_and_the_next_one_is_served() -> None:
    with socket.socket() as later:
        later.bind((_HOST, 0))
        with _relay(later.getsockname()[1]) as port:
            with socket.create_connection((_HOST, port)) as client, suppress(ConnectionResetError):
                assert client.recv(1) == b""
            later.listen()
            with socket.create_connection((_HOST, port)) as client:
                there, _ = later.accept()
                there.sendall(b"!")
                assert client.recv(1) == b"!"
                there.close()
