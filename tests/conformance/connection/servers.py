"""An API server and a proxy that record how they are reached: by whom, for which address, with which certificate."""

import base64
import select
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import trustme

NODE: Final = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"edge","uid":"u-1"},"status":{"capacity":{}}}'
_TABLE: Final = (
    b'{"apiVersion":"meta.k8s.io/v1","kind":"Table","columnDefinitions":[],"rows":[],"items":[],"metadata":{}}'
)
# The name in the server's certificate beside its addresses.
NAME: Final = "kubernetes.example.internal"
PROXY_PASSWORD: Final = "proxy-password"


class Seen(NamedTuple):
    """One request. acting_as: the impersonation headers. certificate: common name of the client's."""

    authorization: str
    certificate: str
    acting_as: tuple[tuple[str, str], ...]
    is_by_proxy: bool


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that refuse the certificate, and those that end a connection, are no errors here."""


class ApiServer:
    """refused: values of Authorization, and names of certificates, that get a 401."""

    def __init__(self, folder: Path, *, has_tls: bool = True) -> None:
        self.folder = folder
        self.seen: list[Seen] = []
        self.refused: set[str] = set()
        self.proxied_ports: set[int] = set()
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        self.issue("first")
        outer = self

        class Api(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = _Server(("127.0.0.1", 0), Api)
        self.port: int = self.http.server_port
        self.scheme = "https" if has_tls else "http"
        if has_tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.authority.issue_cert("127.0.0.1", "localhost", NAME).configure_cert(context)
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_OPTIONAL
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def issue(self, name: str) -> None:
        """Write a client certificate of that name, and its key."""
        certificate = self.authority.issue_cert("client@example.com", common_name=name)
        certificate.cert_chain_pems[0].write_to_path(str(self.folder / "tls.crt"))
        certificate.private_key_pem.write_to_path(str(self.folder / "tls.key"))

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def _answer(self, request: Any) -> None:
        connection = request.connection
        certificate: Any = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
        subject = (certificate or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        headers = [(name.lower(), value) for name, value in request.headers.items()]
        seen = Seen(
            dict(headers).get("authorization", ""),
            "".join(names),
            tuple(sorted((name, value) for name, value in headers if name.startswith("impersonate-"))),
            request.client_address[1] in self.proxied_ports,
        )
        self.seen.append(seen)
        is_good = not {seen.authorization, seen.certificate} & self.refused
        body = (NODE if "/nodes/" in request.path else _TABLE) if is_good else b'{"kind":"Status","code":401}'
        request.send_response(200 if is_good else 401)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


class Proxy:
    """An HTTP proxy towards one API server, whatever address it is asked for. needs_password: else it refuses with a 407."""

    def __init__(self, server: ApiServer, *, needs_password: bool = False) -> None:
        self._server = server
        self.asked: list[str] = []
        outer = self
        expected = f"Basic {base64.b64encode(f'someone:{PROXY_PASSWORD}'.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                self._forward(b"", self.path)

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                lines = [f"GET {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.headers.items())]
                self._forward("\r\n".join([*lines, "Connection: close", "", ""]).encode(), parts.netloc)

            def _forward(self, head: bytes, address: str) -> None:
                outer.asked.append(address)
                if needs_password and self.headers.get("Proxy-Authorization") != expected:
                    self.send_response(407)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                with socket.create_connection(("127.0.0.1", server.port)) as upstream:
                    server.proxied_ports.add(upstream.getsockname()[1])
                    if head:
                        upstream.sendall(head)
                    else:
                        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    _pump(self.connection, upstream)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.http = _Server(("127.0.0.1", 0), Handler)
        self.port: int = self.http.server_port
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url_with_password(self) -> str:
        return f"http://someone:{PROXY_PASSWORD}@127.0.0.1:{self.port}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def _pump(one: socket.socket, other: socket.socket) -> None:
    while True:
        for ready in select.select([one, other], [], [])[0]:
            octets = ready.recv(65536)
            if not octets:
                return
            (other if ready is one else one).sendall(octets)
