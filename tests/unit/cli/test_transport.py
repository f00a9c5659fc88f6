"""Where a request goes, with which credentials, and how much of an answer is read: without a connection."""

import base64
import gzip
import io
import ssl
import tracemalloc
import zlib
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

import pytest
from kubectl_nodedevice import exec_plugin, transport
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.kubeconfig import Login
from kubectl_nodedevice.transport import Connection, TooBig


def opened(server: str = "https://api", **more: Any) -> HTTPConnection:
    return Connection(Login(server, "kubeconfig", **more), 90.5)._opened()


# -- where to -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "is_secure", "host", "port"),
    [
        ("https://api", True, "api", 443),
        ("https://api:6443/prefix", True, "api", 6443),
        ("http://api", False, "api", 80),
        ("http://api:8080", False, "api", 8080),
    ],
)
def test_a_server(server: str, is_secure: bool, host: str, port: int) -> None:
    found = opened(server)
    # by which it is named in its requests without the port
    assert found.default_port == (443 if is_secure else 80)
    assert (found.host, found.port, found.timeout) == (host, port, 90.5)


def test_certificates_of_other_clusters_are_not_read_too_strictly() -> None:
    flags = vars(opened())["_tls"].verify_flags
    assert flags & ssl.VERIFY_X509_TRUSTED_FIRST
    assert not flags & ssl.VERIFY_X509_STRICT


@pytest.mark.parametrize("server", ["api", "ftp://api", "https://", ""])
def test_an_address_that_is_none(server: str) -> None:
    with pytest.raises(LoginProblem) as error:
        opened(server)
    assert error.value.problem == f"{server} is no address of an API server"
    assert error.value.remedy == "it has to begin with https://"


def test_a_port_that_is_none() -> None:
    with pytest.raises(LoginProblem) as error:
        opened("https://api:99999")
    assert (error.value.problem, error.value.remedy) == (
        "api:99999 has no valid port",
        "it is a number up to 65535",
    )


def test_the_name_that_a_certificate_is_for() -> None:
    assert getattr(opened(), "_name", "") == "api"
    assert getattr(opened(tls_server_name="other"), "_name", "") == "other"


_ENCODED: Final = {"Proxy-Authorization": f"Basic {base64.b64encode(b'u@er:p@ss').decode()}"}
_BASIC: Final = {"Proxy-Authorization": f"Basic {base64.b64encode(b'u:p').decode()}"}


@pytest.mark.parametrize(
    ("proxy", "host", "port", "headers"),
    [
        ("http://proxy:3128", "proxy", 3128, {}),
        ("proxy", "proxy", 80, {}),
        ("http://u:p@proxy", "proxy", 80, _BASIC),
        ("http://u%40er:p%40ss@proxy", "proxy", 80, _ENCODED),
        ("http://u@proxy", "proxy", 80, {"Proxy-Authorization": f"Basic {base64.b64encode(b'u:').decode()}"}),
    ],
)
def test_by_a_proxy(proxy: str, host: str, port: int, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (opened("https://api:6443", proxy=proxy), _by_environment(proxy, monkeypatch)):
        tunnel = vars(found)
        assert (found.host, found.port) == (host, port)
        assert (tunnel["_tunnel_host"], tunnel["_tunnel_port"]) == ("api", 6443)
        assert {name: value for name, value in tunnel["_tunnel_headers"].items() if name != "Host"} == headers
    plain = opened("http://api:8080", proxy=proxy)
    assert (plain.host, plain.port, vars(plain)["_tunnel_host"]) == (host, port, None)


def _by_environment(proxy: str, monkeypatch: pytest.MonkeyPatch) -> HTTPConnection:
    with monkeypatch.context() as patched:
        patched.setenv("HTTPS_PROXY", proxy)
        return opened("https://api:6443")


@pytest.mark.parametrize("proxy", ["socks5://proxy", "https://proxy", "http://"])
def test_a_proxy_that_is_not_possible(proxy: str) -> None:
    with pytest.raises(LoginProblem) as error:
        opened(proxy=proxy)
    assert error.value.problem == f"a proxy by {proxy.partition(':')[0]}:// is not possible here"
    assert error.value.remedy == "name an http:// one, in proxy-url or HTTPS_PROXY"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://big", "https_proxy": "http://small"}, "http://big"),
        ({"https_proxy": "http://small"}, "http://small"),
        ({"HTTP_PROXY": "http://other"}, ""),
        ({"HTTPS_PROXY": "http://big", "no_proxy": "api"}, ""),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": "x", "no_proxy": "api"}, "http://big"),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": " , API ,"}, ""),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": "x,api"}, ""),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": "api/8"}, "http://big"),
    ],
)
def test_the_proxy_of_the_environment(environment: dict[str, str], expected: str) -> None:
    assert transport.proxy_of("https", "api", environment) == expected


# -- as whom ------------------------------------------------------------------------------------------------------------------


def authorization(**login: Any) -> list[tuple[str, str]]:
    return [*Connection(Login("https://api", "kubeconfig", **login), None)._authorization()]


def test_who_is_asking(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" of-a-file\n")
    basic = base64.b64encode(b"name:word").decode()
    assert authorization() == []
    assert authorization(token="t", username="name") == [("Authorization", "Bearer t")]
    assert authorization(token="t", token_file=str(file)) == [("Authorization", "Bearer of-a-file")]
    assert authorization(username="name", password="word") == [("Authorization", f"Basic {basic}")]


@pytest.mark.parametrize("token", ["with\nline", "größe"])
def test_a_token_that_is_none(token: str) -> None:
    with pytest.raises(LoginProblem) as error:
        authorization(token=token)
    assert (error.value.problem, error.value.remedy) == ("the token of kubeconfig is none", "log in again")


def test_a_token_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LoginProblem) as error:
        authorization(token_file=str(tmp_path / "none"))
    problem = f"the token {tmp_path / 'none'} cannot be read: No such file or directory"
    assert (error.value.problem, error.value.remedy) == (problem, "correct the kubeconfig")
    (tmp_path / "none").write_bytes(b"\xff")
    with pytest.raises(LoginProblem, match="cannot be read: it is no text in UTF-8"):
        authorization(token_file=str(tmp_path / "none"))


def test_a_login_program_is_asked_once_and_only_where_there_is_no_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Login] = []

    def run(login: Login) -> exec_plugin.Credential:
        asked.append(login)
        return exec_plugin.Credential(token=f"t{len(asked)}")

    monkeypatch.setattr(exec_plugin, "run", run)
    program: dict[str, Any] = {"exec_plugin": {"command": "x"}}
    assert authorization(**program, token="own") == [("Authorization", "Bearer own")]
    file = tmp_path / "token"
    file.write_text("file")
    assert authorization(**program, token_file=str(file)) == [("Authorization", "Bearer file")]
    assert not asked
    connection = Connection(Login("https://api", "kubeconfig", **program), None)
    assert not connection.log_in_again()
    for _ in range(2):
        assert [*connection._authorization()] == [("Authorization", "Bearer t1")]
    assert connection.log_in_again()
    assert [*connection._authorization()] == [("Authorization", "Bearer t2")]


@pytest.mark.parametrize(
    ("login", "why"),
    [
        ({"ca_data": base64.b64encode(b"no certificate").decode()}, "cadata does not contain a certificate"),
        ({"ca_data": "a"}, "Invalid base64-encoded string"),
        ({"ca_file": "/none"}, "No such file or directory"),
        ({"cert_file": "/none", "key_file": "/none"}, "No such file or directory"),
    ],
)
def test_a_certificate_that_cannot_be_used(login: dict[str, str], why: str) -> None:
    with pytest.raises(LoginProblem) as error:
        opened(**login)
    assert error.value.problem.startswith("a certificate of kubeconfig cannot be used: ")
    assert why in error.value.problem
    assert error.value.remedy == "correct the kubeconfig"


# -- what is answered ---------------------------------------------------------------------------------------------------------


def content(octets: bytes, encoding: str = "", give_up_at: float | None = None) -> bytes:
    """Of at most a MiB."""
    response: Any = io.BytesIO(octets)
    return transport._content(response, encoding, give_up_at, 1 << 20)


def test_a_body_plain_or_packed() -> None:
    octets = bytes(range(256)) * 1000
    assert content(octets) == content(gzip.compress(octets), "gzip") == octets
    assert content(b"") == b""
    for other in (b"plain", zlib.compress(octets)):
        with pytest.raises(HTTPException, match="it is not gzip"):
            content(other, "gzip")


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_has_a_bound(encoding: str) -> None:
    def of(size: int) -> bytes:
        return gzip.compress(b"x" * size) if encoding else b"x" * size

    assert len(content(of(1 << 20), encoding)) == 1 << 20
    with pytest.raises(TooBig, match="an answer of more than 1 MiB"):
        content(of((1 << 20) + (1 << 18)), encoding)


def test_what_is_packed_ever_so_small_takes_no_memory() -> None:
    packed = gzip.compress(bytes(16 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooBig):
            content(packed, "gzip")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20


def test_a_body_that_comes_ever_so_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_PIECE", 1)
    now = iter((10.0, 11.0, 11.1))
    monkeypatch.setattr("kubectl_nodedevice.transport.time.monotonic", lambda: next(now))
    assert content(b"ab", give_up_at=11.0) == b"ab"
    with pytest.raises(OSError, match=r"^$") as error:
        content(b"ab", give_up_at=11.0)
    assert isinstance(error.value, TimeoutError)


class Http:
    """A connection as far as a request is written to it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def putrequest(self, method: str, target: str, *, skip_accept_encoding: bool) -> None:
        self.sent.append((method, target, skip_accept_encoding))

    def putheader(self, name: str, value: str) -> None:
        self.sent.append((name, value))

    def endheaders(self, body: bytes | None) -> None:
        self.sent.append(body)


def test_a_request() -> None:
    http: Any = Http()
    transport._send(http, "PATCH", "/x", [("A", "b"), ("A", "c")], b"body")
    transport._send(http, "GET", "/y", [], None)
    assert http.sent == [
        ("PATCH", "/x", True),
        ("A", "b"),
        ("A", "c"),
        ("Content-Length", "4"),
        b"body",
        ("GET", "/y", True),
        None,
    ]
