"""`discover` asks a node's agent by kubectl, and says what to type where it cannot."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubectl_nodedevice.commands import discover

from tests.unit.cli.api_server import PODS, FakeApiServer
from tests.unit.cli.conftest import Refused, Run, Terminal
from tests.unit.cli.objects import THEN, labels_of, pod

_BY_HAND = "type on the node, as root: nodedevice-agent discover"


@pytest.fixture(autouse=True)
def _agent(server: FakeApiServer) -> None:
    """Of node-a, in a pod."""
    server.objects[PODS].append(_pod("nodedevice-agent-x"))


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name that notes how it is called; tests add what it does then."""
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {program}.called\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def _does(kubectl: Path, script: str) -> None:
    with kubectl.open("a") as file:
        file.write(script)


def _called(kubectl: Path) -> list[str]:
    called = kubectl.with_name("kubectl.called")
    return called.read_text().split() if called.exists() else []


def test_the_agent_is_asked(run: Run, kubectl: Path) -> None:
    _does(kubectl, 'printf "usb 0403:6001\\033[31m\\n  paste: this\\n"; echo a note >&2\n')
    ran = run("discover", "node-a", "--context", "test", "--as", "bob", "--as-uid", "u-1", "--as-group", "admins")
    assert (ran.status, ran.out, ran.err) == (0, "usb 0403:6001[31m\n  paste: this\n", "a note\n")
    assert _called(kubectl) == [
        *("--context", "test", "--as", "bob", "--as-uid", "u-1", "--as-group", "admins", "exec"),
        *("-n", "nodedevice-system", "nodedevice-agent-x", "--", "nodedevice-agent", "discover"),
    ]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("printf 'first\\nlast\\n\\n \\n' >&2; exit 1", "last"),
        ("printf 'no \\377 text' >&2; exit 1", "no \N{REPLACEMENT CHARACTER} text"),
        ("exit 3", "kubectl ended with status 3"),
    ],
)
def test_why_the_agent_could_not_be_asked(run: Run, kubectl: Path, script: str, reason: str) -> None:
    _does(kubectl, f"printf 'half \\377\\n'; {script}\n")
    ran = run("discover", "node-a")
    words = f"error: the agent of node-a could not be asked: {reason}; {_BY_HAND}\n"
    assert (ran.status, ran.out, ran.err) == (2, "half \N{REPLACEMENT CHARACTER}\n", words)


@contextmanager
def _typed_ahead(words: bytes) -> Iterator[None]:
    """What a person has typed for the command after this one."""
    reading, writing = os.pipe()
    own = os.dup(0)
    try:
        os.write(writing, words)
        os.close(writing)
        os.dup2(reading, 0)
        yield
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reading)


def test_what_is_typed_ahead_is_not_for_the_agent(run: Run, kubectl: Path) -> None:
    _does(kubectl, "cat\n")
    with _typed_ahead(b"kubectl get pods\n"):
        ran = run("discover", "node-a")
    assert (ran.status, ran.out) == (0, "")


def test_an_agent_that_does_not_answer(refused: Refused, kubectl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "_MOST_SECONDS", 0.01)
    _does(kubectl, "exec sleep 60\n")
    found = refused("discover", "node-a")
    problem = "the agent of node-a did not respond within 0.01 s"
    assert (found.code, found.problem, found.remedy) == ("Timeout", problem, _BY_HAND)


def _pod(name: str, namespace: str = "nodedevice-system", **more: Any) -> dict[str, Any]:
    made = pod(name, **more, **labels_of("agent"))
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nodedevice-agent", "controller": True}
    made["metadata"] |= {"namespace": namespace, "ownerReferences": [owner]}
    made["spec"]["serviceAccountName"] = "nodedevice-agent"
    return made


def _bind(server: FakeApiServer, namespace: str) -> None:
    """namespace: of the agents' account; empty for no account."""
    subjects = [{"kind": "ServiceAccount", "name": "nodedevice-agent", "namespace": namespace}]
    binding = {"metadata": {"name": "nodedevice-agent"}, "subjects": subjects}
    server.objects["/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"] = [binding] if namespace else []


@pytest.mark.parametrize(
    ("bound", "words", "expected"),
    [
        ("", (), ["nodedevice-system", "ours"]),
        ("", ("-n", "team"), ["team", "of-the-team"]),
        ("elsewhere", (), ["elsewhere", "far"]),
        ("elsewhere", ("-n", "team"), ["team", "of-the-team"]),
    ],
)
def test_whose_agent_is_asked(
    run: Run, server: FakeApiServer, kubectl: Path, bound: str, words: tuple[str, ...], expected: list[str]
) -> None:
    """The one of the node, which runs, in the release's namespace."""
    _bind(server, bound)
    others = [_pod(name) for name in ("ended", "decoy", "of-nobody", "of-another-account")]
    others[0]["metadata"]["deletionTimestamp"] = THEN
    others[1]["metadata"]["labels"] = {}
    others[2]["metadata"]["ownerReferences"] = []
    others[3]["spec"]["serviceAccountName"] = "default"
    server.objects[PODS] = [
        *(_pod("far", "elsewhere"), _pod("of-the-team", "team")),
        *(_pod("starting", phase="Pending"), _pod("of-another-node", node="node-b"), *others),
        *(_pod("ours"), _pod("second")),
    ]
    assert run("discover", "node-a", *words).status == 0
    assert _called(kubectl) == ["exec", "-n", *expected, "--", "nodedevice-agent", "discover"]


@pytest.mark.parametrize("bound", ["", "elsewhere"])
def test_no_pod_of_a_tenant_is_asked(refused: Refused, server: FakeApiServer, kubectl: Path, bound: str) -> None:
    """What it prints would be pasted into settings."""
    server.objects[PODS] = [_pod("innocent", "tenant-a")]
    _bind(server, bound)
    found = refused("discover", "node-a")
    assert (found.code, found.remedy, _called(kubectl)) == ("NoAgentPod", _BY_HAND, [])


def test_without_kubectl(refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = refused("discover", "node-a", "--as", "a b")
    assert (found.code, found.problem) == ("NoKubectl", "kubectl is not in PATH")
    typed = "kubectl --as 'a b' exec -n nodedevice-system nodedevice-agent-x -- nodedevice-agent discover"
    assert found.remedy == f"type: {typed}"


def test_settings_are_not_wrapped(
    run: Run, kubectl: Path, at_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"      - {{paths: [{{path: {json.dumps('/dev/serial/by-id/' + 'x' * 90)}}}]}}"
    _does(kubectl, f"cat <<'END'\n{line}\nEND\n")
    monkeypatch.setenv("COLUMNS", "60")
    terminal = at_terminal()
    run("discover", "node-a")
    assert terminal.getvalue() == f"{line}\n"
