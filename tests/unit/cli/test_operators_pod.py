"""The operator's own pod: its service account may do only a few of the commands."""

import base64
import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of its account."""
    folder = tmp_path / "account"
    folder.mkdir()
    monkeypatch.setattr("nodedevice_kube.kubeconfig._SERVICE_ACCOUNT", folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (folder / "namespace").write_text("nodedevice-system")
    claims = json.dumps({"sub": "system:serviceaccount:nodedevice-system:nodedevice-operator"}).encode()
    (folder / "token").write_text(f"x.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.y")


@pytest.mark.parametrize(
    "command", [[], ["cordon", "n", "--device", "d", "--reason", "x"], ["why", "pod", "x"], ["discover", "n"]]
)
def test_in_the_operators_pod_it_is_refused(run: Run, pod: None, command: list[str]) -> None:
    ran = run(*command)
    assert "it is the operator's account" in ran.err or "this is the operator's account" in ran.err
    assert (ran.status, "run it as yourself" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["check", "devices", "holders"])
def test_what_it_may_do(run: Run, pod: None, command: str) -> None:
    ran = run(command, "--request-timeout", "200ms", *(["--wait-seconds", "0"] if command == "check" else []))
    assert "run it as yourself" not in ran.err
