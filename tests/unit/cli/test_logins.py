"""A login as a kubeconfig or a pod has it, each entry from its place, and each way to have none."""

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubectl_nodedevice import kubeconfig
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.kubeconfig import Login

_CLUSTER: Final = {
    "server": "https://api/",
    "certificate-authority": "ca.crt",
    "certificate-authority-data": "ca-data",
    "insecure-skip-tls-verify": True,
    "tls-server-name": "name",
    "proxy-url": "http://proxy",
}
_USER: Final[dict[str, Any]] = {
    "client-certificate": "cert",
    "client-certificate-data": "cert-data",
    "client-key": "/abs/key",
    "client-key-data": "key-data",
    "token": "token",
    "tokenFile": "token-file",
    "username": "name",
    "password": "password",
    "exec": {"command": "x"},
    "as": "eve",
    "as-uid": "7",
    "as-groups": ["a", "b"],
}
_CONTENT: Final[dict[str, Any]] = {
    "current-context": "one",
    "clusters": [{"name": "c", "cluster": _CLUSTER}],
    "users": [{"name": "u", "user": _USER}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
        {"name": "two", "context": {"cluster": "c"}},
    ],
}


def written(file: Path, **more: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump({**_CONTENT, **more}))
    return file


def test_a_context_whole(tmp_path: Path) -> None:
    file = written(tmp_path / "kubeconfig")
    assert kubeconfig.load(str(file), "", {}) == Login(
        server="https://api",
        source="context one",
        context="one",
        user="u",
        namespace="ns",
        ca_file=str(tmp_path / "ca.crt"),
        ca_data="ca-data",
        is_insecure=True,
        tls_server_name="name",
        proxy="http://proxy",
        cert_file=str(tmp_path / "cert"),
        cert_data="cert-data",
        key_file="/abs/key",
        key_data="key-data",
        token="token",
        token_file=str(tmp_path / "token-file"),
        username="name",
        password="password",
        exec_plugin={"command": "x"},
        exec_folder=str(tmp_path),
        as_user="eve",
        as_uid="7",
        as_groups=("a", "b"),
    )


def test_a_context_without_a_user(tmp_path: Path) -> None:
    found = kubeconfig.load(str(written(tmp_path / "kubeconfig")), "two", {})
    assert (found.context, found.user, found.namespace, found.token) == ("two", "", "default", "")
    assert found.exec_folder == str(tmp_path)


def test_files_of_the_environment_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in one start from its own folder."""
    other = [{"name": "c", "cluster": {"server": "https://other"}}, {"name": "d", "cluster": _CLUSTER}]
    first = written(tmp_path / "a/kubeconfig", users=[], contexts=[])
    second = written(tmp_path / "b/kubeconfig", clusters=other)
    found = kubeconfig.load("", "", {"KUBECONFIG": f"{tmp_path / 'none'}::{first}:{second}"})
    assert (found.server, found.ca_file) == ("https://api", str(tmp_path / "a/ca.crt"))
    assert found.cert_file == str(tmp_path / "b/cert")
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path / ".kube/config")
    assert kubeconfig.load("", "", {}).ca_file == str(tmp_path / ".kube/ca.crt")
    # the flag counts before the environment
    assert kubeconfig.load(str(second), "", {"KUBECONFIG": str(first)}).server == "https://other"


@pytest.mark.parametrize(
    ("content", "wanted", "code", "problem", "remedy"),
    [
        (
            {"current-context": ""},
            "",
            "NoContext",
            "kubeconfig FILE has no current context",
            "name one by --context; it has: one, two",
        ),
        (
            {"current-context": "", "contexts": []},
            "",
            "NoContext",
            "kubeconfig FILE has no current context",
            "name one by --context; it has: none",
        ),
        ({}, "x", "NoContext", "kubeconfig FILE has no context x", "it has: one, two"),
        (
            {"clusters": []},
            "",
            "BadKubeconfig",
            "context one names cluster c, which the kubeconfig does not have",
            kubeconfig._REMEDY,
        ),
        (
            {"users": []},
            "",
            "BadKubeconfig",
            "context one names user u, which the kubeconfig does not have",
            kubeconfig._REMEDY,
        ),
        (
            {"clusters": [{"name": "c", "cluster": {}}]},
            "",
            "BadKubeconfig",
            "the cluster of context one has no server",
            "kubectl config set-cluster sets it",
        ),
        (
            {"users": [{"name": "u", "user": {"auth-provider": {}}}]},
            "",
            "Login",
            "user u has an auth-provider, which kubectl 1.26 and newer do not know either",
            "use an exec plugin",
        ),
    ],
)
def test_what_a_kubeconfig_lacks(
    content: dict[str, Any], wanted: str, code: str, problem: str, remedy: str, tmp_path: Path
) -> None:
    file = written(tmp_path / "kubeconfig", **content)
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load(str(file), wanted, {})
    found = error.value
    assert (found.code, found.problem, found.remedy) == (code, problem.replace("FILE", str(file)), remedy)


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (None, "No such file or directory"),
        (b"", "it is empty"),
        (b"[]", "it is empty"),
        (b"[1]", "it is no kubeconfig"),
        (b"a: [", "it is not YAML: did not find expected node content in line 2"),
        (b"\xff", "it is no text in UTF-8"),
    ],
)
def test_a_file_that_is_none(octets: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    if octets is not None:
        file.write_bytes(octets)
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load(str(file), "", {})
    found = error.value
    assert (found.code, found.problem, found.remedy) == (
        "BadKubeconfig",
        f"kubeconfig {file}: {why}",
        kubeconfig._REMEDY,
    )


def test_nowhere_is_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load("", "", {})
    assert (error.value.code, error.value.problem, error.value.remedy) == (
        "NoKubeconfig",
        "there is no kubeconfig",
        kubeconfig._REMEDY,
    )


def test_from_a_folder_that_is_gone_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load("x", "", {})
    problem = "no kubeconfig can be found from here: [Errno 2] No such file or directory"
    assert (error.value.code, error.value.problem, error.value.remedy) == ("NoKubeconfig", problem, kubeconfig._REMEDY)


# -- in a pod -----------------------------------------------------------------------------------------------------------------

_IN_A_POD: Final = {"KUBERNETES_SERVICE_HOST": "1.2.3.4", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_account_of_a_pod_whole(account: Path) -> None:
    (account / "token").write_text("a.e30.c")
    (account / "namespace").write_text("ns\n")
    expected = Login(
        "https://1.2.3.4:6443",
        "the pod's account",
        namespace="ns",
        ca_file=str(account / "ca.crt"),
        token_file=str(account / "token"),
    )
    assert kubeconfig.load("", "", _IN_A_POD) == expected
    (account / "namespace").write_text(" ")
    assert kubeconfig.load("", "", _IN_A_POD).namespace == "default"
    (account / "namespace").unlink()
    found = kubeconfig.load("", "", {"KUBERNETES_SERVICE_HOST": "fd::1"})
    assert (found.namespace, found.server) == ("default", "https://[fd::1]:443")


def test_an_account_that_a_pod_does_not_have(account: Path) -> None:
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load("", "", _IN_A_POD)
    problem = f"this pod has no account: {account / 'token'} does not exist"
    assert (error.value.problem, error.value.remedy) == (problem, "let its token be mounted")
    (account / "token").write_bytes(b"\xff")
    with pytest.raises(LoginProblem) as error:
        kubeconfig.load("", "", _IN_A_POD)
    problem = "the pod's account cannot be read: it is no text in UTF-8"
    assert (error.value.problem, error.value.remedy) == (problem, "let its token be mounted")
