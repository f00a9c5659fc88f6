"""`discover` asks a node's agent by kubectl, and says what to type where it cannot."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.api_server import FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import pod
from tests.unit.cli.test_bad_input import STEERING

_LABELS = {"app.kubernetes.io/name": "nodedevice", "app.kubernetes.io/component": "agent"}


@pytest.fixture
def agent(server: FakeApiServer) -> FakeApiServer:
    """Of node-a, in a pod."""
    made = pod("nodedevice-agent-x", "node-a", **_LABELS)
    made["metadata"]["namespace"] = "nodedevice-system"
    server.objects["/api/v1/pods"].append(made)
    return server


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that notes how it is called; tests add what it does then."""
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def _does(kubectl: Path, script: str) -> None:
    with kubectl.open("a") as file:
        file.write(script)


def test_the_agent_is_asked(run: Run, agent: FakeApiServer, kubectl: Path, tmp_path: Path) -> None:
    _does(kubectl, 'printf "usb 0403:6001\\033[31m\\n  paste: this\\n"; echo a note >&2\n')
    ran = run("discover", "node-a", "--context", "test", "--as", "bob", "--as-uid", "u-1", "--as-group", "admins")
    assert (ran.status, ran.out, ran.err) == (0, "usb 0403:6001[31m\n  paste: this\n", "a note\n")
    assert not STEERING.search(ran.out)
    called = (tmp_path / "called").read_text().split()
    assert called[:8] == ["--context", "test", "--as", "bob", "--as-uid", "u-1", "--as-group", "admins"]
    assert called[-5:] == ["nodedevice-system", "nodedevice-agent-x", "--", "nodedevice-agent", "discover"]


def test_json_is_passed_on(run: Run, agent: FakeApiServer, kubectl: Path, tmp_path: Path) -> None:
    _does(kubectl, "echo '{}'\n")
    assert json.loads(run("discover", "node-a", "-o", "json").out) == {}
    assert (tmp_path / "called").read_text().split()[-2:] == ["-o", "json"]


def test_without_the_right_it_says_what_to_type(run: Run, agent: FakeApiServer, kubectl: Path) -> None:
    _does(kubectl, "echo 'error: pods is forbidden: cannot create pods/exec' >&2; exit 1\n")
    ran = run("discover", "node-a")
    assert ran.status == 2
    assert "cannot create pods/exec; type on the node, as root: nodedevice-agent discover" in ran.err


def test_without_kubectl(run: Run, agent: FakeApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "kubectl is not in PATH; type: kubectl exec -n nodedevice-system" in run("discover", "node-a").err


def test_an_agent_outside_of_pods(run: Run) -> None:
    ran = run("discover", "node-a")
    assert ran.err.startswith("error: no agent of node-a runs in a pod that you can see; type on the node, as root:")


def test_no_such_node(run: Run) -> None:
    assert run("discover", "node-x").err.startswith("error: node node-x does not exist; ")


def test_pods_that_may_not_be_seen(run: Run, server: FakeApiServer) -> None:
    server.fault = lambda request: status(403, "no") if "/pods" in request.path else None
    assert "type on the node, as root: nodedevice-agent discover" in run("discover", "node-a").err
