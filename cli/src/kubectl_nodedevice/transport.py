"""One kept HTTP connection to an API server, by the standard library: requests, deadlines, compressed bodies.

Errors are those of the system, which `api` turns into sentences, and LoginProblem.
"""

import http.client
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from nodedevice_kube.credentials import Access, Credentials

from kubectl_nodedevice.errors import as_login_problem

# names and values; a name may be there several times
Headers = Sequence[tuple[str, str]]
_PIECE: Final = 1 << 16
# of one answer, unpacked; a page of the biggest NodeDevices has a tenth of it
MOST_BYTES: Final = 256 << 20


class TooBig(OSError):
    """The answer is bigger than any of the API's."""


class Connection:
    """Requests, one after the other, by one connection that is opened again where the server has closed it."""

    def __init__(self, credentials: Credentials, timeout_seconds: float | None) -> None:
        self._credentials = credentials
        self._timeout = timeout_seconds
        self._access: Access | None = None
        self._http: http.client.HTTPConnection | None = None

    def request(
        self, method: str, target: str, headers: Headers, body: bytes | None, most_bytes: int = MOST_BYTES
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers with names in lower case, and body. Raises OSError, http.client.HTTPException and LoginProblem.

        most_bytes: of the body, unpacked; TooBig is raised for more.
        """
        was_open = self._http is not None and self._http.sock is not None
        try:
            return self._once(method, target, headers, body, most_bytes)
        except (ConnectionError, http.client.RemoteDisconnected):
            # a server closes a connection on which nothing was asked for a while; only then is it certain that it did nothing
            if not was_open:
                raise
            return self._once(method, target, headers, body, most_bytes)

    def log_in_again(self) -> bool:
        """Renew the credentials that the server refused; whether there are others now. Raises LoginProblem."""
        access = self._access
        if access is None:
            return False
        self._credentials.refused(access)
        with as_login_problem():
            return self._credentials.refresh() is not access

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _once(
        self, method: str, target: str, headers: Headers, body: bytes | None, most_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        give_up_at = None if self._timeout is None else time.monotonic() + self._timeout
        with as_login_problem():
            access = self._credentials.refresh()
        if self._access is not access:
            self.close()
            self._access = access
        try:
            self._http = connection = self._http or self._opened(access)
            packing = () if self._credentials.settings.is_uncompressed else (("Accept-Encoding", "gzip"),)
            _send(connection, method, self._target(target), [*packing, *access.headers, *headers], body)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            content = _content(response, names.get("content-encoding"), give_up_at, most_bytes)
            if response.length:
                raise http.client.HTTPException("its answer was cut off")
        except BaseException:
            # what has been sent, and what still comes, is not known
            self.close()
            raise
        return response.status, names, content

    def _target(self, target: str) -> str:
        """A proxy is asked for the whole URL, unless TLS goes through it."""
        settings = self._credentials.settings
        if self._credentials.proxy and settings.scheme == "http":
            return settings.server + target
        return urlsplit(settings.server).path + target

    def _opened(self, access: Access) -> http.client.HTTPConnection:
        settings, proxy = self._credentials.settings, self._credentials.proxy
        host, port = (proxy.host, proxy.port) if proxy else (settings.host, settings.port)
        authorization = {"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else {}
        if access.tls is None:
            return _PlainConnection(host, port, self._timeout, authorization)
        connection = http.client.HTTPSConnection(host, port, timeout=self._timeout, context=access.tls)
        if proxy:
            connection.set_tunnel(settings.host, settings.port, headers=authorization)
        return connection


class _PlainConnection(http.client.HTTPConnection):
    """HTTP to a server or a proxy. always: headers of each request."""

    def __init__(self, host: str, port: int, timeout: float | None, always: Mapping[str, str]) -> None:
        super().__init__(host, port, timeout=timeout)
        self._always = always

    def endheaders(self, message_body: object = None, *, encode_chunked: bool = False) -> None:
        for name, value in self._always.items():
            self.putheader(name, value)
        super().endheaders(message_body, encode_chunked=encode_chunked)  # type: ignore[arg-type]  # bytes or None


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Headers, body: bytes | None
) -> None:
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)


def _content(
    response: http.client.HTTPResponse, encoding: str | None, give_up_at: float | None, most_bytes: int
) -> bytes:
    """The whole body. A server that sends a little now and then has no longer than one that sends nothing."""
    unpacking = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(_PIECE):
        if unpacking:
            try:
                # one byte more than may be: what is cut off here is not noticed
                piece = unpacking.decompress(piece, most_bytes + 1)
            except zlib.error as exc:
                raise http.client.HTTPException("it is not gzip") from exc
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise TooBig(f"an answer of more than {most_bytes >> 20} MiB")
        if give_up_at is not None and time.monotonic() > give_up_at:
            raise TimeoutError
    return b"".join(pieces)
