"""An invalid kubeconfig is reported in one line with the file, the problem and the remedy, and without its secrets."""

from pathlib import Path

import pytest
import yaml
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kube import kubeconfig as kubeconfigs
from nodedevice_agent.kube.client import KubeClient

SECRET = "c2VjcmV0"
GOOD = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": SECRET}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


def but(**other: object) -> str:
    return yaml.safe_dump({**GOOD, **{key.replace("_", "-"): value for key, value in other.items()}})


def cluster(**settings: str) -> str:
    return but(clusters=[{"name": "c", "cluster": {"server": "https://a", **settings}}])


def user(**settings: str) -> str:
    return but(users=[{"name": "u", "user": {"token": SECRET, **settings}}])


async def test_a_right_one(tmp_path: Path) -> None:
    (tmp_path / "kc").write_text(but(), encoding="utf-8")
    connected = KubeClient.connect(tmp_path / "kc")
    assert connected.server == "https://127.0.0.1:6443"
    await connected.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "it is empty", id="empty"),
        pytest.param("{}", "it has no current-context", id="an empty object"),
        pytest.param("just words", "it is no kubeconfig: Expected `object`, got `str`", id="words"),
        pytest.param(f"token: [{SECRET}", "it is not YAML: expected ',' or ']'", id="no YAML"),
        pytest.param("\x00", "it is not YAML", id="zero byte"),
        pytest.param("[" * 3000, "it is not YAML", id="nested without end"),
        pytest.param(but(clusters=5), "got `int` - at `$.clusters`", id="a number for a list"),
        pytest.param(but(clusters=[{"name": "c"}]), "`cluster` - at `$.clusters[0]`", id="a cluster without content"),
        pytest.param(
            but(clusters=[{"name": "c", "cluster": {"server": 7}}]),
            "got `int` - at `$.clusters[0].cluster.server`",
            id="a number as server",
        ),
        pytest.param(but(current_context="y"), "Context 'y' not found", id="no such context"),
        pytest.param(but(current_context=None), "it has no current-context", id="no current context"),
        pytest.param(but(clusters=[]), "its current context names 'c', which is not in it", id="no such cluster"),
        pytest.param(but(clusters=None), "its current context names 'c', which is not in it", id="null clusters"),
        pytest.param(but(users=None), "its current context names 'u', which is not in it", id="null users"),
        pytest.param(but(contexts=None), "Context 'x' not found", id="null contexts"),
        pytest.param(but(users=[]), "its current context names 'u', which is not in it", id="no such user"),
        pytest.param(
            but(contexts=[{"name": "x", "context": {"cluster": "c"}}]), "no current context with a user", id="no user"
        ),
        pytest.param(cluster(server="not a url"), "must begin with https://", id="no address"),
        pytest.param(
            cluster(**{"certificate-authority": "/no/ca.crt"}),
            "its certificate-authority /no/ca.crt: No such file or directory",
            id="no such authority",
        ),
        pytest.param(
            user(**{"client-certificate": "gone"}), "its client-certificate ", id="no certificate, which is named"
        ),
        pytest.param(user(**{"client-certificate": "gone"}), "gone: No such file or directory", id="no certificate"),
        pytest.param(
            user(**{"client-certificate": "kc", "client-key": "gone"}), "its client-key ", id="no key, which is named"
        ),
        pytest.param(cluster(**{"certificate-authority": "kc"}), "no certificate", id="an authority that is none"),
    ],
)
async def test_a_wrong_one(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "kc").write_text(text, encoding="utf-8")
    with pytest.raises(AgentSettingsError) as refused:
        KubeClient.connect(tmp_path / "kc")
    words = str(refused.value)
    assert words.startswith(f"cannot use kubeconfig {tmp_path / 'kc'}: ")
    assert expected in words
    assert words.endswith("correct it, or name another one with --kubeconfig")
    assert (SECRET in words, "\n" in words) == (False, False)


async def test_without_any_setting_it_is_the_file_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(kubeconfigs, "SERVICE_ACCOUNT", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(but(), encoding="utf-8")
    assert kubeconfigs.read(None).cluster.server == "https://127.0.0.1:6443"


def test_the_token_of_a_pod_comes_before_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfigs, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "token").touch()
    with pytest.raises(AgentSettingsError, match=r"^cannot use kubeconfig \(from the environment\): "):
        kubeconfigs.read(None)


async def test_a_missing_kubeconfig_names_the_default_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setattr(kubeconfigs, "SERVICE_ACCOUNT", str(tmp_path))
    with pytest.raises(AgentSettingsError, match=r"nowhere: No such file or directory; .* --kubeconfig"):
        KubeClient.connect(None)
