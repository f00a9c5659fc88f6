"""`kubectl exec deploy/nodedevice-operator -- kubectl-nodedevice …`: with the operator's own token and rights."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from kubectl_nodedevice import program

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import PlayedNode

pytestmark = pytest.mark.cluster

Typed = Callable[..., tuple[int, str]]

ALLOWED = ["check", "devices", "holders"]
# with what each of the others needs on its command line; "" is the first screen
OTHERS = {
    "": [],
    "open": ["--no-browser"],
    "nodes": [],
    "why": ["pod", "a"],
    "cordon": ["a", "--device", "b", "--reason", "c"],
    "uncordon": ["a", "--device", "b"],
    "discover": ["a"],
}
ASK_NO_CLUSTER = {"completion", "__complete", "config"}


@pytest.fixture
def in_pod(
    installed: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    """Run a command line as in that pod: without a kubeconfig, with its account's folder."""
    path = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, "nodedevice-operator", tmp_path / "account")
    login = yaml.safe_load(path.read_text())
    cluster = login["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])
    (tmp_path / "token").write_bytes(Path(login["users"][0]["user"]["tokenFile"]).read_bytes())
    (tmp_path / "namespace").write_text(SYSTEM_NAMESPACE)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    monkeypatch.setattr("nodedevice_kube.kubeconfig._SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(server.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))

    def typed(*arguments: str) -> tuple[int, str]:
        status = program.run([*arguments])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return typed


@pytest.mark.usefixtures("operator")
def test_what_is_allowed_there_sees_all_that_it_needs(in_pod: Typed, node: PlayedNode) -> None:
    status, printed = in_pod("check", "--wait-seconds", "60", "-o", "json")
    assert status == 0, printed
    # progress comes behind it
    items = json.JSONDecoder().raw_decode(printed)[0]["items"]
    assert {each["what"] for each in items} >= {"kind", "operator", "agents", "NodeDevice"}
    for command in ("devices", "holders"):
        status, printed = in_pod(command, *(["-A"] if command == "holders" else []))
        assert status in (0, 1), printed
        assert "may not" not in printed
    assert node.name in in_pod("devices")[1]


@pytest.mark.parametrize("command", OTHERS)
def test_for_the_rest_it_sends_people_to_themselves(in_pod: Typed, command: str) -> None:
    status, printed = in_pod(*([command] if command else []), *OTHERS[command])
    assert (status, "run it as yourself" in printed) == (2, True), printed


def test_each_command_is_in_one_of_the_lists() -> None:
    assert {*ALLOWED, *OTHERS, *ASK_NO_CLUSTER} - {""} == set(program.COMMANDS)
