"""What is wrong with a kubeconfig is one error, which names the file or the entry and the remedy, and quotes no secret."""

import base64
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from nodedevice_kube import kubeconfig
from nodedevice_kube.errors import ConnectionProblem, CredentialProblem, NoSettings
from nodedevice_kube.settings import Impersonation

SECRET: Final = "SECRET-TOKEN"
_CA: Final = "certificate-authority-data"
_GOOD: Final[dict[str, Any]] = {
    "current-context": "x",
    "clusters": [{"name": "c", "cluster": {"server": "https://api"}}],
    "users": [{"name": "u", "user": {"token": SECRET}}],
    "contexts": [
        {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
        {"name": "y", "context": {}},
    ],
}


def but(**other: Any) -> str:
    return yaml.safe_dump({**_GOOD, **{key.replace("_", "-"): value for key, value in other.items()}})


def cluster(**entry: Any) -> str:
    return but(clusters=[{"name": "c", "cluster": {"server": "https://api", **entry}}])


def user(**entry: Any) -> str:
    return but(users=[{"name": "u", "user": {"token": SECRET, **entry}}])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "FILE: it is empty", id="empty"),
        pytest.param("just words", "FILE: it is not a kubeconfig", id="words"),
        pytest.param(f"a: [{SECRET}", "FILE: it is not YAML: ", id="no YAML"),
        pytest.param("[" * 50_000, "deeper than 64 levels", id="deep"),
        pytest.param(f"{but()}---\n{but()}", "it has several documents", id="two documents"),
        pytest.param(but(current_context="y"), "context y names cluster , which", id="no cluster named"),
        pytest.param(but(users=[]), "context x names user u, which", id="no such user"),
        pytest.param(but(clusters=5), "FILE: clusters is not a list", id="a number of clusters"),
        pytest.param(but(users=[{"user": {}}]), "FILE: users[0] has no name", id="a nameless user"),
        pytest.param(but(contexts=[{"name": "x", "context": 3}]), "contexts[0].context is not a mapping", id="number"),
        pytest.param(cluster(server=7), "FILE: clusters[0].cluster.server has to be a text", id="a number as server"),
        pytest.param(cluster(server="api"), "the server 'api' is not a valid address", id="no scheme"),
        pytest.param(cluster(server="https://api:99999"), "is not a valid address", id="no port"),
        pytest.param(cluster(server=f"https://u:{SECRET}@api"), "server https://***@api has a user", id="a password"),
        pytest.param(cluster(server=f"u:{SECRET}@api"), "'u:***@api' is not a valid address", id="and no scheme"),
        pytest.param(cluster(**{_CA: "!!"}), f"{_CA} of cluster of context x is not base64", id="no base64"),
        pytest.param(user(token=[SECRET]), "users[0].user.token has to be a text", id="a list of tokens"),
        pytest.param(user(username="u"), "user u has both a token and a username", id="two log-ins"),
        pytest.param(user(**{"auth-provider": {"name": "gcp"}}), "user u has an auth-provider", id="auth-provider"),
        pytest.param(user(**{"as-groups": [1], "as": "x"}), "is not a list of texts", id="a number of groups"),
        pytest.param(user(**{"as-user-extra": {"a": "b"}, "as": "x"}), "is not a list of texts", id="extra"),
        pytest.param(user(exec={"command": "x", "apiVersion": "v0"}), "plugin of user u has apiVersion v0", id="exec"),
    ],
)
def test_what_is_wrong(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConnectionProblem) as refused:
        kubeconfig.load(str(file), "", {})
    assert refused.value.code == "BadKubeconfig"
    assert problem.replace("FILE", f"kubeconfig {file}") in refused.value.problem
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"), [("{}", "has no current context"), (but(current_context="z"), "has no context z")]
)
def test_a_context_that_is_missing(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConnectionProblem, match=problem) as refused:
        kubeconfig.load(str(tmp_path / "config"), "", {})
    assert refused.value.code == "NoContext"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "octets").write_bytes(b"\xff")
    for name, problem in (("none", "No such file"), (".", "Is a directory"), ("octets", "it is not UTF-8 text")):
        with pytest.raises(ConnectionProblem, match=problem):
            kubeconfig.load(str(tmp_path / name), "", {})


def test_without_any_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoSettings, match="there is no kubeconfig; name one by --kubeconfig"):
        kubeconfig.load("", "", {})

    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    with pytest.raises(NoSettings, match="no kubeconfig can be found"):
        kubeconfig.load("x", "", {})


def test_the_flag_comes_before_the_environment_and_that_before_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    for name in ("one", "two", ".kube/config"):
        (tmp_path / name).write_text(cluster(server=f"https://{Path(name).name}/"))
    environment = {"KUBECONFIG": f"{tmp_path / 'none'}::{tmp_path / 'two'}", "KUBERNETES_SERVICE_HOST": "1.2.3.4"}
    assert kubeconfig.load(str(tmp_path / "one"), "", environment).server == "https://one"
    assert kubeconfig.load("", "", environment).server == "https://two"
    assert kubeconfig.load("", "", {}).server == "https://config"


def test_no_secret_is_shown(tmp_path: Path) -> None:
    impersonation = {"as": "eve", "as-groups": ["g"], "as-uid": "7", "as-user-extra": {"k": ["v"]}}
    (tmp_path / "config").write_text(user(**impersonation))
    settings = kubeconfig.load(str(tmp_path / "config"), "", {})
    assert settings.impersonation == Impersonation("eve", "7", ("g",), (("k", ("v",)),))
    assert SECRET not in repr(settings)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's service account, without a token."""
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_in_a_pod(account: Path) -> None:
    claims = json.dumps({"sub": "system:serviceaccount:nodedevice-system:robot"}).encode()
    (account / "token").write_text(f"x.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.y")
    (account / "namespace").write_text("nodedevice-system\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    settings = kubeconfig.load("", "", environment)
    assert (settings.server, settings.account) == ("https://[fd00::1]:6443", "robot")
    assert settings.namespace == "nodedevice-system"
    assert (settings.ca_file, settings.token_file) == (str(account / "ca.crt"), str(account / "token"))


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.%.c", "a.bnVsbA.c"])
def test_a_token_of_another_form_names_no_account(account: Path, token: str) -> None:
    (account / "token").write_text(token)
    assert kubeconfig.in_pod({"KUBERNETES_SERVICE_HOST": "1.2.3.4"}).account == ""


def test_a_pod_without_a_service_account(account: Path) -> None:
    with pytest.raises(CredentialProblem, match="token does not exist; let its token be mounted"):
        kubeconfig.load("", "", {"KUBERNETES_SERVICE_HOST": "1.2.3.4"})
    (account / "token").write_bytes(b"\xff")
    with pytest.raises(CredentialProblem, match="cannot be read: it is not UTF-8 text"):
        kubeconfig.load("", "", {"KUBERNETES_SERVICE_HOST": "1.2.3.4"})
