"""The connection through a proxy: whatever the proxy sends to CONNECT, and however slowly."""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final

import pytest
from nodedevice_kube import tunnels
from nodedevice_kube.proxies import Proxy

_OPEN: Final = b"HTTP/1.1 200 Connection established\r\nVia: here\r\n\r\n"


@contextmanager
def proxy(respond: Callable[[socket.socket], object]) -> Iterator[tuple[Proxy, list[bytes]]]:
    """A proxy that reads one request, and then does that; and what it has read."""
    listener = socket.create_server(("127.0.0.1", 0))
    read: list[bytes] = []

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            read.append(peer.recv(10_000))
            try:
                respond(peer)
            except OSError:
                # the client has given up
                return

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield Proxy("127.0.0.1", listener.getsockname()[1], "Basic dTpw"), read
    finally:
        listener.close()
        serving.join()


def sends(*pieces: bytes) -> Callable[[socket.socket], object]:
    def send(peer: socket.socket) -> None:
        for piece in pieces:
            peer.sendall(piece)

    return send


def opened(made: Proxy, seconds: float | None = None) -> socket.socket:
    return tunnels.opened(made, "api.example", 6443, seconds, "tests")


def test_a_tunnel_leads_on() -> None:
    def echo(peer: socket.socket) -> None:
        sends(*(_OPEN[at : at + 1] for at in range(len(_OPEN))))(peer)
        peer.sendall(peer.recv(100))

    with proxy(echo) as (made, read), opened(made) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
    expected = b"CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\nUser-Agent: tests\r\n"
    assert read == [expected + b"Proxy-Authorization: Basic dTpw\r\n\r\n"]


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b"HTTP/1.1 407 Give a password\r\n\r\n", "refused the connection: 407 Give a password"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "refused the connection: no status"),
        (_OPEN + b"more", "sends something before"),
        (b"", "ended the connection"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000, "sends more than 32 KiB of headers"),
    ],
)
def test_what_is_no_tunnel(response: bytes, problem: str) -> None:
    with proxy(sends(response)) as (made, _), pytest.raises(OSError, match=f"the proxy {problem}"):
        opened(made)


def test_header_lines_without_an_end_are_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def drips(peer: socket.socket) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            peer.sendall(b"A: b\r\n")

    # a second passes with each piece of them
    seconds = itertools.count(100.0)
    monkeypatch.setattr(tunnels, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(tunnels, "_PIECE", 1)
    with proxy(drips) as (made, _), pytest.raises(OSError, match=r"^$") as error:
        opened(made, 90.0)
    assert (type(error.value), next(seconds)) == (TimeoutError, 191.0)
