"""One kept HTTP connection to an API server, by the standard library: requests, deadlines, compressed bodies.

Raises the system's errors, which `api` words, and LoginProblem.
"""

import http
import http.client
import io
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from nodedevice_kube.credentials import Access, Credentials
from nodedevice_kube.proxies import Proxy

from kubectl_nodedevice.errors import as_login_problem

# names and values; a name may occur several times
Headers = Sequence[tuple[str, str]]
# status, headers with names in lower case, and body
Response = tuple[int, Mapping[str, str], bytes]
USER_AGENT: Final = "kubectl-nodedevice"
_PIECE: Final = 1 << 16
# of one unpacked response: ten times a page of the largest NodeDevices
MOST_BYTES: Final = 256 << 20


class TooLong(OSError):
    """The response is longer than any of the API's."""


class Connection:
    """Sends requests one after the other. Opens the connection again if the server has closed it."""

    def __init__(self, credentials: Credentials, timeout_seconds: float | None) -> None:
        self._credentials = credentials
        self._timeout = timeout_seconds
        self._access: Access | None = None
        self._http: http.client.HTTPConnection | None = None

    def request(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | None,
        most_bytes: int = MOST_BYTES,
        take: Callable[[bytes], object] | None = None,
        *,
        is_watch: bool = False,
    ) -> Response:
        """Raises OSError, http.client.HTTPException and LoginProblem.

        most_bytes: of the unpacked body; more raises TooLong. take: takes the body of a 200 piece by piece, of a watch as soon as
        each arrives.
        """
        give_up_at = None if self._timeout is None else time.monotonic() + self._timeout
        was_open = self._http is not None and self._http.sock is not None
        try:
            response = self._begun(method, target, headers, body, give_up_at)
        except (ConnectionError, http.client.RemoteDisconnected):
            # A server closes an idle connection. Only then it is certain that the server did nothing.
            if not was_open:
                raise
            response = self._begun(method, target, headers, body, give_up_at)
        names = {name.lower(): value for name, value in response.getheaders()}
        kept: list[bytes] = []
        try:
            for piece in _pieces(response, names.get("content-encoding"), most_bytes, is_watch=is_watch):
                (take if take and response.status == http.HTTPStatus.OK else kept.append)(piece)
            if response.length:
                raise http.client.HTTPException("the response was cut off")
        except BaseException:
            # The rest of the response is unknown.
            self.close()
            raise
        return response.status, names, b"".join(kept)

    def log_in_again(self) -> bool:
        """Renew credentials that the server refused. Return whether they changed. Raises LoginProblem."""
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

    def _begun(
        self, method: str, target: str, headers: Headers, body: bytes | None, give_up_at: float | None
    ) -> http.client.HTTPResponse:
        with as_login_problem():
            access = self._credentials.refresh()
        if self._access is not access:
            self.close()
            self._access = access
        try:
            self._http = connection = self._http or self._opened(access)
            if give_up_at is not None:
                connection.response_class = partial(  # type: ignore[assignment]  # http.client only calls it
                    _Response, give_up_at=give_up_at
                )
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout)
            connection.putrequest(method, self._target(target), skip_accept_encoding=True)
            for name, value in (*self._always(access), *access.headers, *headers):
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return connection.getresponse()
        except BaseException:
            # The request may or may not have been sent.
            self.close()
            raise

    def _always(self, access: Access) -> Iterator[tuple[str, str]]:
        proxy = self._credentials.proxy
        if not self._credentials.settings.is_uncompressed:
            yield "Accept-Encoding", "gzip"
        if access.tls is None and proxy and proxy.authorization:
            yield "Proxy-Authorization", proxy.authorization

    def _target(self, target: str) -> str:
        """A proxy needs the whole URL, except with TLS."""
        settings = self._credentials.settings
        if self._credentials.proxy and settings.scheme == "http":
            return settings.server + target
        return urlsplit(settings.server).path + target

    def _opened(self, access: Access) -> http.client.HTTPConnection:
        settings, proxy = self._credentials.settings, self._credentials.proxy
        if access.tls is None:
            host, port = (proxy.host, proxy.port) if proxy else (settings.host, settings.port)
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        return _TlsConnection(settings.host, settings.port, self._timeout, access.tls, proxy)


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(
        self, host: str, port: int, timeout: float | None, context: ssl.SSLContext, proxy: Proxy | None
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._seconds, self._tls, self._proxy = timeout, context, proxy

    def connect(self) -> None:
        if self._proxy is None:
            super().connect()
        else:
            from nodedevice_kube import tunnels

            plain = tunnels.opened(self._proxy, self.host, self.port, self._seconds, USER_AGENT)
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class _Response(http.client.HTTPResponse):
    """Ends at a deadline, even if the server keeps sending a little."""

    def __init__(self, sock: socket.socket, *given: Any, give_up_at: float, **more: Any) -> None:
        super().__init__(sock, *given, **more)
        self.fp = io.BufferedReader(_Received(sock, self.fp.detach(), give_up_at))


class _Received(io.RawIOBase):
    def __init__(self, sock: socket.socket, raw: io.RawIOBase, give_up_at: float) -> None:
        self._sock, self._raw, self._give_up_at = sock, raw, give_up_at

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._give_up_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _pieces(
    response: http.client.HTTPResponse, encoding: str | None, most_bytes: int, *, is_watch: bool = False
) -> Iterator[bytes]:
    # read1 does not end a response that has a length, such as a refusal: the connection could not be used again
    read = response.read1 if is_watch and response.status == http.HTTPStatus.OK else response.read
    unpacking = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    size = 0
    while packed := read(_PIECE):
        for piece in _unpacked(unpacking, packed) if unpacking else (packed,):
            size += len(piece)
            if size > most_bytes:
                raise TooLong(f"a response of more than {most_bytes >> 20} MiB")
            yield piece


def _unpacked(unpacking: "zlib._Decompress", packed: bytes) -> Iterator[bytes]:
    """Yield pieces, as a few bytes can unpack to megabytes."""
    while packed:
        try:
            yield unpacking.decompress(packed, _PIECE)
        except zlib.error as exc:
            raise http.client.HTTPException("it is not gzip") from exc
        packed = unpacking.unconsumed_tail
