"""A client without a certificate that connects as often as its argument says: `python -m tests.integration.extender.flood`.

It computes no TLS: its ClientHello is made once. What it has connected so far is on its standard output, a number a line.
"""

import argparse
import selectors
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from tests.unit.sources import ROOT

# what it does with a connection: nothing, or send a ClientHello; keep it, or close it at once
Kind = Literal["silent", "silent, closing", "hello", "hello, closing"]
KINDS: Final[tuple[Kind, ...]] = ("silent", "silent, closing", "hello", "hello, closing")
_MOST_KEPT: Final = 4000
_PAUSE_SECONDS: Final = 0.005


@contextmanager
def flooded(address: tuple[str, int], source: str, kind: Kind, per_second: int) -> Iterator[None]:
    """That server, from that address, until the end; begins when some have connected."""
    command = [
        sys.executable,
        "-m",
        "tests.integration.extender.flood",
        *map(str, (*address, source, kind, per_second)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            while int(process.stdout.readline()) < per_second:
                pass
            yield
        finally:
            process.kill()


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="nodedevice-extender")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("it waits for the server")


class _Flood:
    def __init__(self, address: tuple[str, int], source: str, kind: Kind) -> None:
        self._address, self._source = address, source
        self._hello = client_hello() if kind.startswith("hello") else b""
        self._is_closing = kind.endswith("closing")
        self._connecting = selectors.DefaultSelector()
        self._kept: deque[socket.socket] = deque()
        self.connected = 0

    def connect(self) -> None:
        made = socket.socket()
        made.setblocking(False)
        made.bind((self._source, 0))
        made.connect_ex(self._address)
        self._connecting.register(made, selectors.EVENT_WRITE)

    def work(self) -> None:
        for key, _ in self._connecting.select(0):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            self._connecting.unregister(connection)
            self.connected += not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            with suppress(OSError):
                connection.send(self._hello)
            if self._is_closing:
                connection.close()
            else:
                self._kept.append(connection)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popleft().close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("host", str), ("port", int), ("source", str), ("kind", str), ("per_second", int)):
        parser.add_argument(name, type=kind)
    given = parser.parse_args()
    flood = _Flood((given.host, given.port), given.source, given.kind)
    begun, due = 0, 0.0
    before = said = time.monotonic()
    while True:
        now = time.monotonic()
        # after a pause of the machine it goes on, and does not catch up
        due, before = due + min(now - before, 0.1) * given.per_second, now
        while begun < due:
            flood.connect()
            begun += 1
        flood.work()
        if now - said > 0.2:
            print(flood.connected, flush=True)
            said = now
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
