"""No secret and no control character reaches a log or a terminal: each entrance, of each program that reads a kubeconfig."""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast

import prometheus_client
import pytest
import yaml
from kubectl_nodedevice import program
from nodedevice_agent.errors import AgentError
from nodedevice_agent.kube.client import KubeClient
from nodedevice_common import logs
from nodedevice_kube import api_errors, masking
from nodedevice_operator.errors import ApiError, CredentialsError
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.unit.sources import ROOT

# a library leaves a file open where a key is none
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
_ODD: Final = "\x1b[31m\x07\u202e"
_WEBHOOK: Final = f'failed calling webhook "w": Post "https://u:SECRET@w.svc:443/?token=SECRET": {_ODD} EOF'


class _Server(BaseHTTPRequestHandler):
    """An API server, or a proxy, that repeats in its words what it was sent."""

    def _answer(self) -> None:
        authorization = self.headers.get("Authorization", "")
        words = f"{_WEBHOOK}; Authorization: {authorization}; {authorization.rpartition(' ')[2]}"
        body = json.dumps({"kind": "Status", "status": "Failure", "code": 500, "message": words}).encode()
        self.send_response(500, f"no {authorization}")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_CONNECT = _answer

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{http.server_port}"
    http.shutdown()
    http.server_close()


def _login(folder: Path, script: str) -> dict[str, Any]:
    """A user whose login program does this."""
    file = folder / "login"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    entry = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(file), "interactiveMode": "Never"}
    return {"exec": entry}


_SAYS: Final = f"printf '%s\\n' '{_ODD} Bearer SECRET-TOKEN' 'https://u:SECRET@idp/' >&2; exit 1"
_GIVES: Final = (
    'echo \'{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", '
    '"status": {"token": "SECRET-OF-A-PROGRAM"}}\''
)

# by the address of the server and a folder: entries of a cluster and of a user
Entrance = Callable[[str, Path], tuple[dict[str, Any], dict[str, Any]]]
_ENTRANCES: Final[dict[str, Entrance]] = {
    "a token": lambda server, _: ({"server": f"http://{server}"}, {"token": "SECRET-TOKEN"}),
    "a token with a line break": lambda server, _: ({"server": f"http://{server}"}, {"token": "SECRET-TOKEN\n"}),
    "a token of two lines": lambda server, _: ({"server": f"http://{server}"}, {"token": "SECRET\nTOKEN"}),
    "a password": lambda server, _: ({"server": f"http://{server}"}, {"username": "u", "password": "SECRET-PW"}),
    "a password in the server": lambda server, _: ({"server": f"http://u:SECRET-PW@{server}"}, {"token": "t"}),
    "one of a server that is down": lambda _, __: ({"server": "http://u:SECRET-PW@127.0.0.1:9"}, {"token": "t"}),
    "one of no server": lambda _, __: ({"server": "ftp://u:SECRET-PW@127.0.0.1:9"}, {"token": "t"}),
    "one with a port that is none": lambda _, __: ({"server": "https://u:SECRET-PW@h:99999"}, {"token": "t"}),
    "a proxy": lambda server, _: (
        {"server": "https://api.invalid:6443", "proxy-url": f"http://u:SECRET-PW@{server}"},
        {"token": "t"},
    ),
    "a proxy that is down": lambda _, __: (
        {"server": "https://api.invalid:6443", "proxy-url": "http://u:SECRET-PW@127.0.0.1:9"},
        {"token": "t"},
    ),
    "a proxy without a scheme": lambda _, __: (
        {"server": "https://api.invalid:6443", "proxy-url": "u:SECRET-PW@127.0.0.1:9"},
        {"token": "t"},
    ),
    "a proxy of another kind": lambda _, __: (
        {"server": "https://api.invalid:6443", "proxy-url": "socks5://u:SECRET-PW@127.0.0.1:9"},
        {"token": "t"},
    ),
    "a login program that fails": lambda server, folder: ({"server": f"http://{server}"}, _login(folder, _SAYS)),
    "the token of a login program": lambda server, folder: ({"server": f"http://{server}"}, _login(folder, _GIVES)),
    "output that is none": lambda server, folder: (
        {"server": f"http://{server}"},
        _login(folder, """echo '{"status": {"token": "SECRET"' """),
    ),
    "a key that is none": lambda server, _: (
        {"server": f"https://{server}"},
        {"client-certificate-data": "U0VDUkVU", "client-key-data": "U0VDUkVULUtFWQ=="},
    ),
}


async def _agent(file: Path) -> list[str]:
    client = KubeClient.connect(file)
    found = [client.server]
    try:
        await client.node_uid("edge")
    except api_errors.ApiError as exc:
        found.append(str(exc))
    finally:
        await client.close()
    return found


async def _operator(file: Path) -> list[str]:
    login = credentials.load(str(file))
    health = ApiHealth(login.server)
    writes = prometheus_client.Counter(
        "w", "w", ["kind", "verb", "outcome"], registry=prometheus_client.CollectorRegistry()
    )
    client = Client(login, health, writes)
    found = [login.cluster]
    try:
        await client.request("GET", "nodes", "/api/v1/nodes/edge")
    except ApiError as exc:
        found += [str(exc), exc.problem, masking.masked("\n".join(health.problems()))]
    finally:
        await client.close()
    return found


def _asked(program: Callable[[Path], Any], file: Path) -> list[str]:
    """The words of its errors; what it logs is on standard error."""
    log = logging.getLogger("nodedevice_common.test")
    try:
        return cast(list[str], asyncio.run(program(file)))
    except (AgentError, CredentialsError) as exc:
        log.exception("cannot start", extra={"error": str(exc)})
        return [str(exc)]


def _command(file: Path) -> list[str]:
    for form in ((), ("-o", "json")):
        assert program.run(["--kubeconfig", str(file), "--request-timeout", "5s", *form, "devices"]) == 2
    return []


PROGRAMS: Final[dict[str, Callable[[Path], list[str]]]] = {
    "agent": lambda file: _asked(_agent, file),
    "operator": lambda file: _asked(_operator, file),
    "cli": _command,
}


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No proxy of this machine's, and no secret of another test."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(masking, "_known", {})
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    gc.collect()
    root.handlers[:] = before
    root.setLevel(level)


def _written(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    file = folder / "config"
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    content = {"current-context": "x", "contexts": [context], "clusters": [{"name": "c", "cluster": cluster}]}
    file.write_text(yaml.safe_dump({**content, "users": [{"name": "u", "user": user}]}))
    return file


@pytest.mark.parametrize("entrance", _ENTRANCES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_secret_is_logged_or_printed(
    name: str, entrance: str, server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.set_up_logs("debug", "text", {"asyncio": logging.WARNING})
    words = PROGRAMS[name](_written(tmp_path, *_ENTRANCES[entrance](server, tmp_path)))
    captured = capfd.readouterr()
    for text in (*words, captured.out, captured.err):
        assert "SECRET" not in text
        assert "U0VDUkVU" not in text
    for line in (captured.out + captured.err).splitlines():
        assert line.replace("\t", "").isprintable(), line
    assert words or captured.err


def test_what_an_install_prints(server: str, tmp_path: Path) -> None:
    """kubectl and Helm complain as they like."""
    kubectl = tmp_path / "kubectl"
    cluster, user = {"server": f"http://u:SECRET-PW@{server}"}, {"token": "SECRET-TOKEN"}
    kubectl.write_text(
        f"#!/bin/sh\ncase \"$*\" in *'config view'*) cat {_written(tmp_path, cluster, user)} ;;\n"
        f"*) printf '%s\\n' '{_ODD}{_WEBHOOK} of SECRET-TOKEN' >&2; exit 1 ;;\nesac\n"
    )
    (tmp_path / "helm").write_text("#!/bin/sh\necho v3.20.0\n")
    for file in (kubectl, tmp_path / "helm"):
        file.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "hack.install", "install", "--plan"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "failed calling webhook" in done.stderr, done.stderr
    assert "SECRET" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()
