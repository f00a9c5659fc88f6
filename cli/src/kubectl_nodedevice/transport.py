"""One kept HTTP connection to an API server: TLS, certificates, tokens, proxies, deadlines. By the standard library.

Knows nothing of Kubernetes but how one logs in. Errors are those of the system, which `api` turns into sentences, and LoginProblem.
"""

import base64
import contextlib
import http.client
import os
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from kubectl_nodedevice import exec_plugin
from kubectl_nodedevice.decoding import Undecodable, read_text
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.kubeconfig import Login
from kubectl_nodedevice.masking import remember, remember_address

# names and values; a name may be there several times
Headers = Sequence[tuple[str, str]]
_PIECE: Final = 1 << 16
# of one answer, unpacked; a page of the biggest NodeDevices has a tenth of it
MOST_BYTES: Final = 256 << 20


class TooBig(OSError):
    """The answer is bigger than any of the API's."""


class Connection:
    """Requests, one after the other, by one connection that is opened again where the server has closed it."""

    def __init__(self, login: Login, timeout_seconds: float | None) -> None:
        self._login = login
        self._timeout = timeout_seconds
        self._credential: exec_plugin.Credential | None = None
        self._http: http.client.HTTPConnection | None = None
        # by which the server is reached; None where directly, or before the first request
        self.proxy: _Proxy | None = None

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
        """Forget the credential that the server refused; return whether another one may be better."""
        had = self._credential is not None
        self._credential = None
        self.close()
        return had

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _once(
        self, method: str, target: str, headers: Headers, body: bytes | None, most_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        give_up_at = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            connection = self._connected()
            server = urlsplit(self._login.server)
            sent = [("Accept-Encoding", "gzip"), *self._authorization(), *headers]
            whole = ""
            if self.proxy and server.scheme == "http":
                # there is no tunnel: the proxy is asked itself
                whole = f"http://{server.netloc.rpartition('@')[2]}"
                sent += self.proxy.headers.items()
            _send(connection, method, f"{whole}{server.path}{target}", sent, body)
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

    def _connected(self) -> http.client.HTTPConnection:
        if self._http is None:
            self._http = self._opened()
        return self._http

    def _opened(self) -> http.client.HTTPConnection:
        remember_address(self._login.server)
        parts = urlsplit(self._login.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoginProblem(f"{self._login.server} is no address of an API server", "it has to begin with https://")
        is_secure = parts.scheme == "https"
        port = _port(parts) or (443 if is_secure else 80)
        proxy = self._login.proxy or proxy_of(parts.scheme, parts.hostname, os.environ, port)
        via = self.proxy = _Proxy(proxy) if proxy else None
        host, to_port = (via.host, via.port) if via else (parts.hostname, port)
        if not is_secure:
            return http.client.HTTPConnection(host, to_port, timeout=self._timeout)
        name = self._login.tls_server_name or parts.hostname
        connection = _NamedConnection(host, to_port, timeout=self._timeout, context=self._context(), name=name)
        if via:
            connection.set_tunnel(parts.hostname, port, headers=via.headers)
        return connection

    def _context(self) -> ssl.SSLContext:
        login = self._login
        try:
            # of both, data counts
            file = None if login.ca_data else login.ca_file
            context = ssl.create_default_context(cafile=file, cadata=_decoded(login.ca_data) or None)
            # certificates of many clusters lack what this asks for, and no other client does
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if login.is_insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            with self._pair() as pair:
                if pair:
                    context.load_cert_chain(*pair)
        except (OSError, ValueError) as exc:
            raise LoginProblem(
                f"a certificate of {login.source} cannot be used: {_reason(exc)}", "correct the kubeconfig"
            ) from exc
        return context

    @contextlib.contextmanager
    def _pair(self) -> Iterator[tuple[str, str] | None]:
        """Files of certificate and key."""
        login, given = self._login, self._given()
        certificate = given.certificate or _decoded(login.cert_data)
        key = given.key or _decoded(login.key_data)
        if not certificate and not login.cert_file:
            yield None
            return
        with _file(certificate, login.cert_file) as cert_file, _file(key, login.key_file) as key_file:
            yield cert_file, key_file

    def _authorization(self) -> Headers:
        login, given = self._login, self._given()
        token = given.token or login.token
        if login.token_file:
            try:
                token = read_text(Path(login.token_file)).strip()
            except Undecodable as exc:
                raise LoginProblem(
                    f"the token {login.token_file} cannot be read: {exc}", "correct the kubeconfig"
                ) from exc
        remember(token)
        if token:
            if not token.isprintable() or not token.isascii():
                raise LoginProblem(f"the token of {login.source} is none", "log in again")
            return [("Authorization", f"Bearer {token}")]
        if login.username:
            pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
            return [("Authorization", f"Basic {pair}")]
        return []

    def _given(self) -> exec_plugin.Credential:
        """What the login's program gives, which is asked once."""
        if self._credential is None:
            has_program = self._login.exec_plugin and not self._login.token and not self._login.token_file
            if not has_program:
                return exec_plugin.Credential()
            self._credential = exec_plugin.run(self._login)
        return self._credential


@contextlib.contextmanager
def _file(content: str, file: str) -> Iterator[str]:
    """A file with the content, which nobody else may read, for as long as it is needed; `file` itself where there is no content."""
    if not content:
        yield file
        return
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="nodedevice-") as written:
        written.write(content)
        written.flush()
        yield written.name


class _NamedConnection(http.client.HTTPConnection):
    """HTTPS to a server whose certificate is for `name`, which may differ from its address."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host: str, port: int, *, timeout: float | None, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls, self._name = context, name

    def connect(self) -> None:
        super().connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


class _Proxy:
    """host, port, and the headers by which one is let through."""

    def __init__(self, url: str) -> None:
        remember_address(url)
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise LoginProblem(
                f"a proxy by {parts.scheme}:// is not possible here", "name an http:// one, in proxy-url or HTTPS_PROXY"
            )
        self.host, self.port = parts.hostname, _port(parts) or 80
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        self.headers = {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"} if pair else {}


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, headers: Headers, body: bytes | None
) -> None:
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)


def proxy_of(scheme: str, host: str, environment: Mapping[str, str], port: int = 0) -> str:
    """The proxy that the environment names for it; "" for none. Source: Go, golang.org/x/net/http/httpproxy."""
    names = (f"{scheme}_proxy".upper(), f"{scheme}_proxy")
    found = next((environment[name] for name in names if environment.get(name)), "")
    if not found or host == "localhost":
        return ""
    address = _address(host)
    if address is not None and address.is_loopback:
        return ""
    for rule in (environment.get("NO_PROXY") or environment.get("no_proxy") or "").split(","):
        if _is_excepted(rule.strip().lower(), host.lower(), port, address):
            return ""
    return found


def _is_excepted(rule: str, host: str, port: int, address: Any) -> bool:
    if rule == "*":
        return True
    if address is not None and "/" in rule:
        import ipaddress

        with contextlib.suppress(ValueError):
            return address in ipaddress.ip_network(rule, strict=False)
    named, colon, of_port = rule.rpartition(":")
    # an IPv6 address has colons, too, and brackets where a port follows
    if colon and of_port.isdecimal() and (":" not in named or named.endswith("]")):
        if int(of_port) != port:
            return False
        rule = named.removeprefix("[").removesuffix("]")
    rule = rule.removeprefix("*").removeprefix(".")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def _address(host: str) -> Any:
    import ipaddress

    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


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


def _port(parts: SplitResult) -> int | None:
    try:
        found: int | None = parts.port
    except ValueError as exc:
        raise LoginProblem(
            f"{parts.netloc.rpartition('@')[2]} has no valid port", "it is a number up to 65535"
        ) from exc
    return found


def _decoded(data: str) -> str:
    """Of base64; raises ValueError for what is none."""
    return base64.b64decode(data).decode()


def _reason(exc: Exception) -> str:
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
