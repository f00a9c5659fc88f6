"""A small cluster for each test, and a way to run the program in this process as a person runs it."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubectl_nodedevice import commands, program
from kubectl_nodedevice.api import Api
from kubectl_nodedevice.errors import CliError
from nodedevice_kube import credentials
from nodedevice_kube.api_errors import ApiError

from tests.unit.cli.api_server import FakeApiServer, kubeconfig, serving
from tests.unit.cli.objects import small_cluster


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


ApiOf = Callable[..., Api]
Run = Callable[..., Ran]
Refused = Callable[..., Any]


class Terminal(io.StringIO):
    """Standard output of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes a terminal the standard output of what runs from then on."""

    def made() -> Terminal:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        return terminal

    return made


@dataclass
class Clock:
    """In place of `time`: it stands but while somebody sleeps. slept: each pause. meanwhile: what happens in it."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own: no kubeconfig, no proxy, no pod; terminals have colours."""
    for name in (
        *("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR", "COLORTERM", "FORCE_COLOR"),
        *("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    with serving(FakeApiServer(small_cluster(now))) as running:
        yield running


@pytest.fixture
def api_of(server: FakeApiServer, tmp_path: Path, request: pytest.FixtureRequest) -> ApiOf:
    """A client of the server. path: behind which it is; user: how the kubeconfig's user logs in."""

    def made(path: str = "", **user: Any) -> Api:
        api = Api(credentials.load(str(kubeconfig(tmp_path, f"{server.address}{path}", **user))))
        request.addfinalizer(api.close)
        return api

    return made


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


@pytest.fixture
def refused(run: Run) -> Refused:
    """What one command line fails with: of errors a program shows the sentence alone."""

    def refuse(*arguments: str) -> Any:
        with (
            program.root.make_context(program.NAME, list(arguments)) as context,
            pytest.raises((CliError, ApiError)) as error,
        ):
            program.root.invoke(context)
        return error.value

    return refuse


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command has been imported yet, as where the program starts."""
    for name in [each for each in sys.modules if each.startswith(f"{commands.__name__}.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(commands, name.rpartition(".")[2], raising=False)


@pytest.fixture
def clock(new_process: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of all that waits, or shows that it does."""
    made = Clock()
    for module in ("api", "output", "commands.check", "commands.cordon", "commands.nodes"):
        monkeypatch.setattr(f"kubectl_nodedevice.{module}.time", made)
    return made
