"""An API server and a proxy that record how they are reached: by whom, for which address, with which certificate."""

import base64
import select
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import prometheus_client
import trustme
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.fakes.played_api.kinds import NODES
from tests.fakes.played_api.messages import Answer, Request, status
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import listen

# The name in the server's certificate beside its addresses.
NAME: Final = "kubernetes.example.internal"
PROXY_PASSWORD: Final = "proxy-password"


class Seen(NamedTuple):
    """One request. acting_as: the impersonation headers. certificate: common name of the client's."""

    authorization: str
    certificate: str
    acting_as: tuple[tuple[str, str], ...]
    is_by_proxy: bool


class ApiServer(PlayedApi):
    """refused: values of Authorization, and names of certificates, that get a 401."""

    def __init__(self, folder: Path, *, has_tls: bool = True) -> None:
        super().__init__(fault=self._record)
        self.objects[NODES] = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge", "uid": "u-1"}}]
        self.folder = folder
        self.seen: list[Seen] = []
        self.refused: set[str] = set()
        self.proxied_ports: set[int] = set()
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        self.issue("first")
        context = None
        if has_tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.authority.issue_cert("127.0.0.1", "localhost", NAME).configure_cert(context)
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_OPTIONAL
        listening, self.close = listen(self, context)
        self.port: int = listening.server_port
        self.url = self.address

    def issue(self, name: str) -> None:
        """Write a client certificate of that name, and its key."""
        certificate = self.authority.issue_cert("client@example.com", common_name=name)
        certificate.cert_chain_pems[0].write_to_path(str(self.folder / "tls.crt"))
        certificate.private_key_pem.write_to_path(str(self.folder / "tls.key"))

    def _record(self, request: Request) -> Answer | None:
        acting_as = sorted(each for each in request.header_lines if each[0].startswith("impersonate-"))
        authorization, is_by_proxy = request.headers.get("authorization", ""), request.peer in self.proxied_ports
        self.seen.append(Seen(authorization, request.certificate, tuple(acting_as), is_by_proxy))
        return status(401) if {authorization, request.certificate} & self.refused else None


def operator_client(kubeconfig: str | None) -> Client:
    """The operator's client; None: of the environment's kubeconfig. Raises OperatorError."""
    found = credentials.load(kubeconfig)
    writes = prometheus_client.Counter("w", "w", ["kind", "verb", "outcome"], registry=None)
    return Client(found, ApiHealth(found.server), writes)


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
                    port = upstream.getsockname()[1]
                    server.proxied_ports.add(port)
                    try:
                        if head:
                            upstream.sendall(head)
                        else:
                            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                        _pump(self.connection, upstream)
                    finally:  # before the kernel can give the port to another connection
                        server.proxied_ports.discard(port)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign]
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
