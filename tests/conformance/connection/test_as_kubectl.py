"""Each setting of a kubeconfig, by kubectl and by our programs: the same server, identity and proxy, or a refusal by all."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import trustme
from kubectl_nodedevice import program
from nodedevice_agent.errors import AgentError
from nodedevice_agent.kube.client import KubeClient
from nodedevice_kube.api_errors import ApiError
from nodedevice_operator.errors import OperatorError

from tests.cluster.build.binaries import find
from tests.conformance.connection.rows import ROWS, Parts, Place, write
from tests.conformance.connection.servers import PROXY_PASSWORD, ApiServer, Proxy, Seen, operator_client

REFUSED: Final = "refused"
_SECRETS: Final = ("SECRET", PROXY_PASSWORD)
_PAGE: Final = Path(__file__).parents[3] / "docs/kubectl.md"
# by row: whether kubectl connects with it; of the rows that ran in this process
_CONNECTS: Final[dict[str, bool]] = {}
# by line of the page: rows that are used, and rows that are refused
_SHOWN: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "| credentials | `token`, `tokenFile`, `username`, `client-certificate`, `exec` v1 and v1beta1 "
    "| `exec` v1alpha1, `auth-provider`, `username` with `token` |": (
        ("server", "tokenFile and token", "username and password", "client-certificate", "exec v1", "exec v1beta1"),
        ("exec v1alpha1", "auth-provider", "username and token"),
    ),
    "| impersonation | `as`, `as-groups`, `as-uid`, `as-user-extra` | `as-groups` without `as` |": (
        ("as, as-groups, as-uid, as-user-extra",),
        ("as-groups without as",),
    ),
    "| TLS | `certificate-authority`, `insecure-skip-tls-verify`, `tls-server-name` | the first two together |": (
        ("certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name"),
        ("insecure-skip-tls-verify with an authority",),
    ),
    "| proxies | `proxy-url`, `HTTPS_PROXY`, `NO_PROXY` | `proxy-url` without a scheme |": (
        ("proxy-url", "HTTPS_PROXY", "NO_PROXY: another network"),
        ("proxy-url without a scheme",),
    ),
    "| files | several in `KUBECONFIG`, YAML or JSON | another `kind` or `apiVersion` |": (
        ("a user in a second file of KUBECONFIG", "JSON"),
        ("another kind of file", "another apiVersion"),
    ),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ApiServer, Proxy, Proxy]]:
    folder = tmp_path_factory.mktemp("server")
    trustme.CA().cert_pem.write_to_path(str(folder.parent / "other-ca.crt"))
    server = ApiServer(folder)
    proxies = Proxy(server), Proxy(server, needs_password=True)
    yield server, *proxies
    for made in (*proxies, server):
        made.close()


def by_kubectl(environment: Mapping[str, str]) -> str:
    arguments = [str(find(["kubectl"])["kubectl"]), "get", "--raw", "/api/v1/nodes/edge", "--request-timeout=20s"]
    done = subprocess.run(
        arguments, env=dict(environment), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return done.stderr if done.returncode else ""


def by_command(_: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    status = program.run(["devices", "--request-timeout=20s"])
    shown = capsys.readouterr()
    return shown.err + shown.out if status not in (0, 1) else ""


async def by_operator() -> None:
    client = operator_client(None)
    try:
        await client.request("GET", "nodes", "/api/v1/nodes/edge")
    finally:
        await client.close()


async def by_agent() -> None:
    client = KubeClient.connect(None)
    try:
        await client.node_uid("edge")
    finally:
        await client.close()


def message_of(ask: Callable[[], Coroutine[None, None, None]]) -> str:
    try:
        asyncio.run(ask())
    except (AgentError, OperatorError, ApiError) as exc:
        return str(exc)
    return ""


def outcome(server: ApiServer, ask: Callable[[], str]) -> tuple[Seen | str, str]:
    """What the server saw of the program, and the program's message."""
    server.seen.clear()
    message = ask()
    if message:
        return REFUSED, message
    assert server.seen, "no request came, and no message"
    return server.seen[-1], ""


@pytest.mark.parametrize(("name", "make"), ROWS, ids=[name for name, _ in ROWS])
def test_as_kubectl(
    name: str,
    make: Callable[[Place], Parts],
    servers: tuple[ApiServer, Proxy, Proxy],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, *_ = servers
    for key in list(os.environ):
        if key.lower().endswith("_proxy") or key.startswith("KUBE"):
            monkeypatch.delenv(key)
    for key, value in write(make(Place(tmp_path, *servers)), Place(tmp_path, *servers)).items():
        monkeypatch.setenv(key, value)
    expected, by_example = outcome(server, lambda: by_kubectl(os.environ))
    ways: dict[str, Callable[[], str]] = {
        "command": lambda: by_command(os.environ, capsys),
        "operator": lambda: message_of(by_operator),
        "agent": lambda: message_of(by_agent),
    }
    found = {who: outcome(server, ask) for who, ask in ways.items()}
    assert {who: seen for who, (seen, _) in found.items()} == dict.fromkeys(ways, expected), (by_example, found)
    _CONNECTS[name] = expected != REFUSED
    for message in (message for _, message in found.values()):
        assert not any(secret in message for secret in _SECRETS)
        assert "Traceback" not in message


@pytest.mark.parametrize("line", _SHOWN, ids=lambda line: line.split()[1])
def test_the_page_has_the_line(line: str) -> None:
    """And kubectl does what it shows, in the rows that ran in this process."""
    assert line in _PAGE.read_text().splitlines()
    used, refused = _SHOWN[line]
    names = {name for name, _ in ROWS}
    assert {*used, *refused} <= names
    assert not [name for name in used if not _CONNECTS.get(name, True)]
    assert not [name for name in refused if _CONNECTS.get(name, False)]
