"""Which server, and as whom: several files, contexts, paths, and the account of a pod."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubectl_nodedevice import kubeconfig
from kubectl_nodedevice.errors import LoginProblem

from tests.unit.cli.conftest import Run


def _write(file: Path, **content: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def _of(name: str, server: str, **user: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"in-{name}"}}],
        "users": [{"name": name, "user": user}],
    }


def test_the_first_file_counts(tmp_path: Path) -> None:
    one = _write(tmp_path / "one/config", **_of("a", "https://one", tokenFile="token"))
    two = _write(tmp_path / "two/config", **{"current-context": "b"}, **_of("b", "https://two"))
    three = _write(tmp_path / "three/config", **{"current-context": "a"}, **_of("a", "https://three"))
    files = os.pathsep.join(map(str, [one, tmp_path / "missing", two, three]))
    login = kubeconfig.load("", "", {"KUBECONFIG": files})
    assert (login.server, login.context, login.namespace) == ("https://two", "b", "in-b")
    login = kubeconfig.load("", "a", {"KUBECONFIG": files})
    assert (login.server, login.token_file) == ("https://one", str(tmp_path / "one/token"))


def test_contexts_that_do_not_exist_are_refused_with_those_that_do(tmp_path: Path) -> None:
    file = str(_write(tmp_path / "config", **_of("a", "https://one")))
    with pytest.raises(LoginProblem) as problem:
        kubeconfig.load(file, "x", {})
    assert problem.value.remedy == "it has: a"
    with pytest.raises(LoginProblem, match="has no current context"):
        kubeconfig.load(file, "", {})


def test_a_file_that_the_flag_names_has_to_exist(tmp_path: Path) -> None:
    with pytest.raises(LoginProblem, match="No such file"):
        kubeconfig.load(str(tmp_path / "x"), "", {})


def test_as_somebody_else(tmp_path: Path) -> None:
    user = {"as": "eve", "as-groups": ["a"], "as-uid": "7"}
    file = _write(tmp_path / "config", **{"current-context": "a"}, **_of("a", "https://one/", **user))
    login = kubeconfig.load(str(file), "", {})
    assert (login.as_user, login.as_groups, login.as_uid, login.server) == ("eve", ("a",), "7", "https://one")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    file = _write(tmp_path / "config", **{"current-context": "a"}, **_of("a", "https://one", token="secret"))
    assert "secret" not in repr(kubeconfig.load(str(file), "", {}))


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's account, without a token."""
    folder = tmp_path / "account"
    folder.mkdir()
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", folder)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (folder / "namespace").write_text("nodedevice-system")
    return folder


def _token(account: str) -> str:
    claims = json.dumps({"sub": f"system:serviceaccount:nodedevice-system:{account}"}).encode()
    return f"x.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.y"


def test_a_pod(pod: Path) -> None:
    (pod / "token").write_text(_token("robot"))
    login = kubeconfig.load("", "", {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (login.server, login.namespace, login.account) == ("https://[fd00::1]:6443", "nodedevice-system", "robot")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.%.c", "a.bnVsbA.c"])
def test_a_token_of_another_form_has_no_account(pod: Path, token: str) -> None:
    (pod / "token").write_text(token)
    assert kubeconfig.in_cluster({"KUBERNETES_SERVICE_HOST": "1.2.3.4"}).account == ""


def test_a_pod_without_an_account(pod: Path) -> None:
    with pytest.raises(LoginProblem, match="this pod has no account"):
        kubeconfig.load("", "", {"KUBERNETES_SERVICE_HOST": "1.2.3.4"})


@pytest.mark.parametrize(
    "command", [[], ["cordon", "n", "--device", "d", "--reason", "x"], ["why", "pod", "x"], ["discover", "n"]]
)
def test_in_the_operators_pod_it_is_refused(run: Run, pod: Path, command: list[str]) -> None:
    (pod / "token").write_text(_token("nodedevice-operator"))
    ran = run(*command)
    assert ran.status == 2
    assert "run it as yourself" in ran.err
