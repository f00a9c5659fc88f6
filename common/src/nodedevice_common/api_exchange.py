"""What a transport asks of connections to an API server: a request, the response to it, and what can go wrong."""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from nodedevice_kube.credentials import Access, Headers


class Broken(Exception):
    """No usable response. The text is the problem in the system's words, without addresses."""


class Late(Broken):
    """The connection is open, and nothing came over it within so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no response within {round(seconds, 1):g} s")
        self.seconds = seconds


class Request(Struct, frozen=True):
    """target: path and query. headers: without headers of connection and credentials.

    before_write: called before the first byte is sent, each time; if it raises, nothing is sent.
    """

    method: str
    target: str
    headers: Headers = ()
    body: bytes | None = None
    before_write: Callable[[], None] | None = None


class Response(Protocol):
    """A response whose body is still to be read. It must be closed; a connection that is not read to its end is ended."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str | None:
        """name: in small letters."""

    async def read(self, seconds: float | None) -> bytes:
        """Return the next bytes; b"" at the end. seconds: None waits for ever. Raises Broken, and Late."""

    def close(self) -> None: ...


class Sender(Protocol):
    """Sends the requests of a transport."""

    async def send(self, request: Request, access: Access, seconds: float) -> Response:
        """Send, and wait for the start of the response for so many seconds. Raises Broken, and errors of `before_write`."""

    async def close(self) -> None:
        """End all connections."""
