"""A small cluster for each test, and a way to run the program in this process as a person runs it."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubectl_nodedevice import program

from tests.unit.cli.api_server import FakeApiServer, kubeconfig, serving
from tests.unit.cli.objects import small_cluster


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


class Terminal(io.StringIO):
    """Standard output of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own: no kubeconfig, no proxy, no pod."""
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "https_proxy",
        "http_proxy",
        "NO_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    with serving(FakeApiServer(small_cluster(now))) as running:
        yield running


@pytest.fixture
def run(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run one command line against the server."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.address)))

    def run_it(*arguments: str) -> Ran:
        capsys.readouterr()
        status = program.run(list(arguments))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run_it
