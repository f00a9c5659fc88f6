"""Requests: pages, what a server asks to wait for, connections that end, and as whom they are sent."""

import base64
import json
import ssl
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from kubectl_nodedevice import kubeconfig
from kubectl_nodedevice.api import Api, path_of
from kubectl_nodedevice.errors import LoginProblem, Unauthorized, Unreachable, UsageProblem
from kubectl_nodedevice.session import seconds_of
from kubectl_nodedevice.transport import proxy_of

from tests.unit.cli.api_server import Answer, FakeApiServer, Fault, Request, serving, status
from tests.unit.cli.api_server import kubeconfig as written
from tests.unit.cli.conftest import Run

_KIND: Final = path_of("nodedevices")


@pytest.fixture
def api(server: FakeApiServer, tmp_path: Path) -> Iterator[Api]:
    made = Api(kubeconfig.load(str(written(tmp_path, server.address)), ""))
    yield made
    made.close()


def _objects(number: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"n{each}"}} for each in range(number)]


def _first(*answers: Answer | None) -> Fault:
    """These, one after the other; then as usual."""
    rest = iter(answers)
    return lambda _: next(rest, None)


def test_a_list_is_read_page_by_page(api: Api, server: FakeApiServer) -> None:
    server.objects[_KIND] = _objects(1234)
    names = [each["metadata"]["name"] for each in api.objects("nodedevices", _KIND)]
    assert names == [f"n{each}" for each in range(1234)]
    assert [each.query.get("continue") for each in server.requests] == [None, "500", "1000"]


def test_a_list_that_has_changed_goes_on_by_the_servers_token(api: Api, server: FakeApiServer) -> None:
    server.objects[_KIND] = _objects(700)
    expired = {"kind": "Status", "code": 410, "metadata": {"continue": "500"}}
    server.fault = _first(None, Answer(410, json.dumps(expired).encode()))
    assert len(list(api.objects("nodedevices", _KIND))) == 700


def test_a_connection_that_the_server_has_closed_is_opened_again(api: Api, server: FakeApiServer) -> None:
    server.fault = lambda _: Answer(ends=True)
    for _ in range(3):
        api.get("nodes", "/api/v1/nodes")


def test_a_server_that_has_no_room_is_asked_again(
    api: Api, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("kubectl_nodedevice.api.time.sleep", pauses.append)
    busy = Answer(429, b"{}", {"Retry-After": "3"})
    server.fault = _first(busy, busy)
    api.get("nodes", "/api/v1/nodes")
    assert pauses == [3.0, 3.0]


def test_as_somebody_else(run: Run, server: FakeApiServer) -> None:
    run("--as", "eve", "--as-group", "a", "--as-group", "b", "--as-uid", "7")
    seen = server.requests[0].headers
    assert (seen["impersonate-user"], seen["impersonate-uid"]) == ("eve", "7")
    assert "impersonate-group" in seen


def test_tokens(server: FakeApiServer, tmp_path: Path) -> None:
    """Of a file the newest counts."""
    file = tmp_path / "token"
    file.write_text("one\n")
    api = Api(kubeconfig.load(str(written(tmp_path, server.address, tokenFile="token")), ""))
    api.get("nodes", "/api/v1/nodes")
    file.write_text("two\n")
    api.get("nodes", "/api/v1/nodes")
    api.close()
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer one", "Bearer two"]


_PROGRAM: Final = """
import json, os, pathlib, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
assert os.environ["GREETING"] == "hello" and info["spec"]["interactive"] is False
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {"token": f"token-{number}"}}))
"""


def _login_program(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "login.py").write_text(_PROGRAM)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "login.py"), str(tmp_path / "count")],
        "env": [{"name": "GREETING", "value": "hello"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }


def test_a_login_program_is_asked_once_and_again_after_a_refusal(server: FakeApiServer, tmp_path: Path) -> None:
    def fault(request: Request) -> Answer | None:
        return (
            status(401) if request.headers["authorization"] == "Bearer token-1" and len(server.requests) > 2 else None
        )

    server.fault = fault
    api = Api(kubeconfig.load(str(written(tmp_path, server.address, exec=_login_program(tmp_path))), ""))
    for _ in range(4):
        api.get("nodes", "/api/v1/nodes")
    api.close()
    tokens = [each.headers["authorization"].removeprefix("Bearer token-") for each in server.requests]
    assert tokens == ["1", "1", "1", "2", "2"]


def test_a_login_program_that_is_refused_ends(server: FakeApiServer, tmp_path: Path) -> None:
    server.fault = lambda _: status(401)
    api = Api(kubeconfig.load(str(written(tmp_path, server.address, exec=_login_program(tmp_path))), ""))
    with pytest.raises(Unauthorized):
        api.get("nodes", "/api/v1/nodes")
    api.close()
    assert len(server.requests) == 2


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(server: FakeApiServer, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    """The same with TLS, for clients with a certificate of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "api.example.com").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    other = FakeApiServer(server.objects)
    with serving(other, context):
        yield other


def _secure_login(authority: trustme.CA, tmp_path: Path, address: str, **changed: Any) -> kubeconfig.Login:
    mine = authority.issue_cert("alice")
    files = {
        "cert.pem": b"".join(each.bytes() for each in mine.cert_chain_pems),
        "key.pem": mine.private_key_pem.bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    entry = {"server": address, "certificate-authority": "ca.pem", **changed}
    user = {"client-certificate": "cert.pem", "client-key": "key.pem"}
    return kubeconfig.load(str(written(tmp_path, address, cluster=entry, **user)), "")


def test_certificates(secure: FakeApiServer, authority: trustme.CA, tmp_path: Path) -> None:
    api = Api(_secure_login(authority, tmp_path, secure.address))
    assert api.get("nodes", "/api/v1/nodes")["kind"] == "List"
    api.close()


@pytest.mark.parametrize("in_data", [("certificate", "key"), ("certificate",), ("key",)])
def test_certificates_in_the_kubeconfig_are_in_files_while_they_are_read(
    secure: FakeApiServer,
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_data: tuple[str, ...],
) -> None:
    login = _secure_login(authority, tmp_path, secure.address)
    files = {"certificate": login.cert_file, "key": login.key_file}
    data = {name: base64.b64encode(Path(files[name]).read_bytes()).decode() for name in in_data}
    login = replace(login, cert_data=data.get("certificate", ""), key_data=data.get("key", ""))
    # what counts is the data
    for name in in_data:
        Path(files[name]).write_text("")
    read: list[Path] = []
    usual = ssl.SSLContext.load_cert_chain

    def noted(context: ssl.SSLContext, *given: str) -> None:
        read.extend(map(Path, given))
        for file in set(read) - {*map(Path, files.values())}:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert file.name.startswith("nodedevice-")
        usual(context, *given)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    api = Api(login)
    assert api.get("nodes", "/api/v1/nodes")["kind"] == "List"
    api.close()
    assert [file.exists() for file in read] == ["certificate" not in in_data, "key" not in in_data]


def test_of_two_authorities_the_data_counts(secure: FakeApiServer, authority: trustme.CA, tmp_path: Path) -> None:
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    changed = {"certificate-authority": "nowhere", "certificate-authority-data": data}
    api = Api(_secure_login(authority, tmp_path, secure.address, **changed))
    assert api.get("nodes", "/api/v1/nodes")["kind"] == "List"
    api.close()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"certificate-authority": ""}, "certificate"),
        ({"tls-server-name": "other.example.com"}, "other.example.com"),
        ({"certificate-authority": "nowhere"}, "cannot be used: No such file"),
        ({"certificate-authority-data": "bm9uZQ=="}, "cannot be used"),
    ],
)
def test_certificates_that_are_not_trusted(
    secure: FakeApiServer, authority: trustme.CA, tmp_path: Path, changed: dict[str, str], problem: str
) -> None:
    api = Api(_secure_login(authority, tmp_path, secure.address, **changed))
    with pytest.raises((Unreachable, LoginProblem), match=problem):
        api.get("nodes", "/api/v1/nodes")
    api.close()


@pytest.mark.parametrize(
    "changed", [{"insecure-skip-tls-verify": True, "certificate-authority": ""}, {"tls-server-name": "api.example.com"}]
)
def test_other_names(secure: FakeApiServer, authority: trustme.CA, tmp_path: Path, changed: dict[str, Any]) -> None:
    api = Api(_secure_login(authority, tmp_path, secure.address, **changed))
    assert api.get("nodes", "/api/v1/nodes")["kind"] == "List"
    api.close()


# flags and the environment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("", 30.0), ("0", None), ("0s", None), ("2", 2.0), ("0.5", 0.5), ("1m30s", 90.0), ("1.5m", 90.0)),
        *(("250ms", 0.25), ("1h", 3600.0), ("999999", 999999.0)),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["x", "1x", "-1", "1m 2s", "nan", "inf", "1e6", "278h"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(UsageProblem) as error:
        seconds_of(text)
    problem = f"--request-timeout {text} is no duration"
    assert (error.value.problem, error.value.remedy) == (problem, "such as 30s, 2m, or 0 for none")


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("api.example.com", "", "http://p"),
        ("api.example.com", "example.com", ""),
        ("api.example.com", ".example.com", ""),
        ("api.example.com", "*.example.com", ""),
        ("api.example.com", "ple.com", "http://p"),
        ("api.example.com", "*", ""),
        ("10.1.2.3", "10.0.0.0/8", ""),
        ("10.1.2.3", "10.0.0.1/8", ""),
        ("10.1.2.3", "11.0.0.0/8, 10.1.2.3", ""),
        ("10.1.2.3", "bad/8", "http://p"),
        ("127.0.0.1", "", ""),
        ("localhost", "", ""),
        ("api.example.com", "api.example.com:6443", ""),
        ("api.example.com", ".example.com:443", "http://p"),
        ("fd00::1", "[fd00::1]:6443", ""),
        ("fd00::1", "fd00::1", ""),
        ("10.1.2.3", "10.1.2.3:1", "http://p"),
    ],
)
def test_proxies(host: str, no_proxy: str, expected: str) -> None:
    assert proxy_of("https", host, {"HTTPS_PROXY": "http://p", "NO_PROXY": no_proxy}, 6443) == expected
