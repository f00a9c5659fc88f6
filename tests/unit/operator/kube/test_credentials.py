"""What is wrong with a kubeconfig is one error, which names the file, what is wrong in it and what to do."""

import base64
import ssl
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from kubernetes import config
from nodedevice_common import logs
from nodedevice_operator.__main__ import main
from nodedevice_operator.errors import CredentialsError
from nodedevice_operator.kube import credentials

from tests.unit.operator.kube.api_server import kubeconfig as kubeconfig_file
from tests.unit.operator.kube.api_server import kubeconfig_text as kubeconfig

NO_CERTIFICATE = base64.b64encode(b"no certificate").decode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("just words", "got `str`", id="plain text"),
        pytest.param("a: [", "it is not YAML", id="no YAML"),
        pytest.param(f"{kubeconfig({}, {})}\npreferences: {'[' * 50_000}", "it is not YAML", id="too deep"),
        pytest.param("", "is empty", id="empty"),
        pytest.param("{}", "current-context", id="nothing in it"),
        pytest.param(kubeconfig({}, {}, clusters=5), "$.clusters", id="a number of clusters"),
        pytest.param(kubeconfig({}, {}, contexts="x"), "$.contexts", id="contexts in a word"),
        pytest.param(kubeconfig({}, {}, users=[{"user": {}}]), "`name` - at `$.users[0]`", id="a user without a name"),
        pytest.param(kubeconfig({}, {"tokenFile": 3}), "$.users[0].user.tokenFile", id="a number of token files"),
        pytest.param(
            kubeconfig({"certificate-authority-data": "!!!!"}, {}), "certificate authority", id="CA that is no base64"
        ),
        pytest.param(
            kubeconfig({"certificate-authority-data": NO_CERTIFICATE}, {}),
            "certificate authority",
            id="CA that is none",
        ),
        pytest.param(
            kubeconfig({"certificate-authority": "/none/ca.crt"}, {}), "/none/ca.crt", id="CA file is missing"
        ),
        pytest.param(
            kubeconfig({}, {"client-certificate-data": NO_CERTIFICATE, "client-key-data": NO_CERTIFICATE}),
            "client certificate",
            id="client certificate that is none",
        ),
    ],
)
def test_a_kubeconfig_that_is_none_ends_the_program_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, problem: str
) -> None:
    # the logging of this process is not the program's
    monkeypatch.setattr(logs, "set_up_logs", lambda *_: None)
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    done = CliRunner().invoke(main, ["run", "--kubeconfig", str(file), "--http-address", "127.0.0.1:0"])
    assert done.exit_code == 2
    (line,) = done.output.splitlines()
    assert line.startswith(f"nodedevice-operator: kubeconfig {file}: cannot be used (")
    assert line.endswith("); give one with --kubeconfig")
    assert problem in line


def test_one_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "none"
    for given, default in ((str(missing), "~/.kube/config"), (None, str(missing))):
        monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", default)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with pytest.raises(CredentialsError, match=f"kubeconfig {missing}: cannot be used .there is no such file"):
            credentials.load(given)


def test_says_which_cluster_it_is_and_where_that_is_written(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(kubeconfig({}, {}, contexts=[], **{"current-context": ""}))
    second.write_text(kubeconfig({}, {}))
    assert credentials.load(str(second)).cluster == f"https://127.0.0.1:1 (context here of kubeconfig {second})"
    both = f"{first}:{second}"
    assert credentials.load(both).cluster == f"https://127.0.0.1:1 (context here of kubeconfig {both})"
    # of two that choose one, the first does
    first.write_text(kubeconfig({}, {}))
    assert credentials.load(both).cluster == f"https://127.0.0.1:1 (context here of kubeconfig {both})"


def test_of_several_those_that_are_missing_count_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig({}, {"tokenFile": "token"}))
    (tmp_path / "token").write_text("secret")
    login = credentials.load(f"{tmp_path / 'none'}:{file}")
    assert (login.server, login.namespace, login.authorization()) == ("https://127.0.0.1:1", "there", "Bearer secret")


def test_files_that_are_being_replaced_later_break_no_client(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(authority))
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig({"certificate-authority": str(authority)}, {"tokenFile": "token"}))
    (tmp_path / "token").write_text("secret")
    login = credentials.load(str(file))
    context = login.ssl_context()
    authority.write_bytes(b"")
    assert login.ssl_context() is context
    for octets in (b"", b"\xff", b"two words"):
        assert login.authorization() == "Bearer secret"
        (tmp_path / "token").write_bytes(octets)
        login.refused()
    (tmp_path / "token").write_text("next")
    assert login.authorization() == "Bearer next"


@pytest.mark.parametrize("has_one_file", [True, False])
def test_a_client_certificate_comes_with_its_key(has_one_file: bool, tmp_path: Path) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("operator")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    chain, key = tmp_path / "client.crt", tmp_path / "client.key"
    made.cert_chain_pems[0].write_to_path(str(chain))
    made.private_key_pem.write_to_path(str(key))
    file = tmp_path / "kubeconfig"
    user = {"client-certificate": str(chain), "client-key": str(key)}
    file.write_text(kubeconfig({"certificate-authority": str(tmp_path / "ca.crt")}, user))
    assert credentials.load(str(file)).ssl_context().get_ca_certs()
    # each of the two has to be what it is
    (key if has_one_file else chain).write_bytes(b"none")
    with pytest.raises(CredentialsError, match="the client certificate and its key cannot be read"):
        credentials.load(str(file)).ssl_context()


@pytest.mark.parametrize("is_insecure", [True, False])
def test_the_api_server_is_verified_unless_the_kubeconfig_says_otherwise(is_insecure: bool, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig({"insecure-skip-tls-verify": is_insecure}, {}))
    context = credentials.load(str(file)).ssl_context()
    assert context.check_hostname is not is_insecure
    assert (context.verify_mode == ssl.CERT_NONE) is is_insecure


@pytest.fixture
def in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where its service account is mounted."""
    for name, value in (("HOST", "fd00::1"), ("PORT", "443")):
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", value)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("first")
    (tmp_path / "namespace").write_text("ours\n")
    account = config.incluster_config
    monkeypatch.setattr(account, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(account, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(credentials, "_POD_NAMESPACE", tmp_path / "namespace")
    return tmp_path


def test_in_a_pod_they_are_its_service_accounts(in_pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    login = credentials.load(None)
    assert (login.server, login.namespace) == ("https://[fd00::1]:443", "ours")
    assert login.cluster == "https://[fd00::1]:443 (the pod's service account)"
    assert login.ssl_context().get_ca_certs()
    assert login.authorization() == "Bearer first"
    # as often as client libraries read it again
    (in_pod / "token").write_text("second")
    now[0] += 59.9
    assert login.authorization() == "Bearer first"
    now[0] = 160.0
    assert login.authorization() == "Bearer second"


def test_in_a_pod_without_a_token_the_account_is_named(in_pod: Path) -> None:
    (in_pod / "token").unlink()
    with pytest.raises(CredentialsError, match=r"the pod's service account: cannot be used \(Service token file"):
        credentials.load(None)


@pytest.mark.parametrize("content", ["", "{", "a: b", "apiVersion: v1\nkind: Config\n"])
def test_a_useless_kubeconfig_is_one_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    with pytest.raises(CredentialsError, match="kubeconfig"):
        credentials.load(str(file))


def test_a_token_file_that_is_gone_is_one_error(tmp_path: Path) -> None:
    login = credentials.load(kubeconfig_file(tmp_path, "http://127.0.0.1:1", token="x"))
    assert login.authorization() == "Bearer x"
    (tmp_path / "token").write_text("y")
    login = credentials.load(kubeconfig_file(tmp_path, "http://127.0.0.1:1", tokenFile=str(tmp_path / "token")))
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialsError, match="token"):
        login.authorization()
