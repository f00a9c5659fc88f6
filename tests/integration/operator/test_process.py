"""The operator as a program: how it starts, ends, and bears an API server that is away."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import OperatorProcess


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    made = OperatorProcess(installed, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(operator: OperatorProcess, number: signal.Signals) -> None:
    operator.start()
    assert operator.stop(number) == 0, operator.lines()[-10:]
    assert [line["event"] for line in operator.lines()][-1] == "stopped"
    assert operator.logged("error", "warning") == []


def test_an_api_server_that_is_not_there(operator: OperatorProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        operator.reach_by(f"https://127.0.0.1:{unused.getsockname()[1]}")
    operator.launch()
    wait_until(lambda: "is unreachable" in operator.get("/healthz")[1], "/healthz reports it")
    assert operator.get("/healthz")[0] == 200
    assert operator.get("/readyz")[0] == 503
    assert operator.logged("error") == ["API server is unreachable; retrying"]
    assert operator.stop() == 0


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.02, 0.04, 0.06, 0.1])
def test_a_stop_at_any_moment_of_a_start_is_no_failure(installed: ControlPlane, tmp_path: Path, seconds: float) -> None:
    """Parts of it have not begun then, and others end by themselves when the lead is given up."""
    kubeconfig = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, "nodedevice-operator", tmp_path / "kubeconfig")
    program = Path(sys.executable).with_name("nodedevice-operator")
    command = [str(program), "run", "--kubeconfig", str(kubeconfig), "--http-address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "serving" in running.stderr.readline()
        time.sleep(seconds)
        running.send_signal(signal.SIGTERM)
        rest = running.stderr.read()
        assert running.wait(30) == 0, rest
