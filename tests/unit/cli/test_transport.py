"""How much of an answer is read, and for how long."""

import gzip
import io
import socket
import threading
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from kubectl_nodedevice import transport
from kubectl_nodedevice.transport import Connection, TooLong
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.settings import Settings

# -- what is answered ---------------------------------------------------------------------------------------------------------


def content(octets: bytes, encoding: str = "") -> bytes:
    """Of at most a MiB."""
    response: Any = io.BytesIO(octets)
    return b"".join(transport._pieces(response, encoding, 1 << 20))


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_has_a_bound(encoding: str) -> None:
    def of(size: int) -> bytes:
        return gzip.compress(b"x" * size) if encoding else b"x" * size

    assert len(content(of(1 << 20), encoding)) == 1 << 20
    with pytest.raises(TooLong, match="a response of more than 1 MiB"):
        content(of((1 << 20) + (1 << 18)), encoding)


def test_what_is_packed_ever_so_small_takes_no_memory() -> None:
    packed = gzip.compress(bytes(16 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooLong):
            content(packed, "gzip")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nA: ", b"x", id="a header"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n", id="responses before"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x", id="a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", id="chunks"),
    ],
)
def test_a_response_that_comes_ever_so_slowly(head: bytes, drop: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.sendall(head)
                while True:
                    peer.sendall(drop)
                    time.sleep(0.05)

        serving = threading.Thread(target=serve)
        serving.start()
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        connection = Connection(Credentials(Settings(server=server, origin="a test"), environment={}), 0.3)
        with pytest.raises(TimeoutError):
            connection.request("GET", "/", (), None)
        serving.join()
