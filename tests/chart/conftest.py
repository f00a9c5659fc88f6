"""What the tests of the chart share: helm as a program, a node, and the accounts that its hooks have only while they run."""

import io
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kubectl_nodedevice import program
from nodedevice_operator.__main__ import main as operator_main

from hack import yaml_text
from tests.chart.rendering import hook_manifests
from tests.chart.values import HOOK_OF, Command, Outcome
from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import OperatorProcess, PlayedNode


@pytest.fixture(scope="session")
def helm(progress: Callable[[str], None]) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run helm with these arguments; whether it fails is the caller's to see."""
    helm_program = str(find(["helm"], progress)["helm"])

    def run(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        command = [helm_program, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)

    return run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of the file's own, whose node only plays its pods."""
    with ControlPlane.start(tmp_path_factory.mktemp("own") / "c", print) as running:
        running.add_node("node-a")
        yield running


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(installed, tmp_path / "operator").running() as process:
        yield process


@pytest.fixture
def node(installed: ControlPlane) -> Iterator[PlayedNode]:
    """One whose agent shows three devices, all of them healthy."""
    with PlayedNode(installed) as made:
        made.renew_lease()
        made.make()
        made.publish(healthy=3)
        yield made


@pytest.fixture
def as_hook(installed: ControlPlane, tmp_path: Path) -> Iterator[Command]:
    """Run the command of a hook as its account, with its own token: status, and what it printed."""
    made: list[list[dict[str, Any]]] = []

    def run(*arguments: str, values: dict[str, Any] | None = None) -> Outcome:
        hook = HOOK_OF[arguments[0]]
        accounts = hook_manifests(hook, values)
        made.append(accounts)
        installed.apply(yaml_text.dump_all(accounts))
        kubeconfig = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, hook, tmp_path / hook)
        line = [*arguments, "--kubeconfig", str(kubeconfig)]
        if arguments[0] == "check":
            with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
                return program.run(line), printed.getvalue()
        done = CliRunner().invoke(operator_main, line)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        return done.exit_code, done.output

    yield run
    for accounts in made:
        installed.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml_text.dump_all(accounts))
