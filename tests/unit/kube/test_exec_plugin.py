"""Log-in programs: what they are given, and each way in which they give nothing. The programs are real ones."""

import base64
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_kube import exec_plugin
from nodedevice_kube.errors import CredentialProblem
from nodedevice_kube.exec_plugin import Credential
from nodedevice_kube.settings import Settings

_V1: Final = "client.authentication.k8s.io/v1"


def printed(**status: Any) -> str:
    return json.dumps({"apiVersion": _V1, "kind": "ExecCredential", "status": status})


def settings(
    folder: Path, output: str, *, status: int = 0, entry: dict[str, Any] | None = None, **more: Any
) -> Settings:
    program = folder / "login"
    program.write_text(
        f'#!/bin/sh\necho "$@ $A" > {folder}/arguments\nprintf %s "$KUBERNETES_EXEC_INFO" > {folder}/info\n'
        f"cat <<'EOF'\n{output}\nEOF\nexit {status}\n"
    )
    program.chmod(0o700)
    whole = {"apiVersion": _V1, "command": "./login", "interactiveMode": "Never", **(entry or {})}
    return Settings("https://api", "x", user="u", exec_plugin=whole, exec_folder=str(folder), **more)


def info(folder: Path) -> Any:
    return json.loads((folder / "info").read_text())


def test_what_it_is_given(tmp_path: Path) -> None:
    entry = {"args": ["x", "y"], "env": [{"name": "A", "value": "b"}, {"value": "nameless"}, None]}
    output = printed(token="t", expirationTimestamp="2026-01-01T00:00:00Z")
    assert exec_plugin.run(settings(tmp_path, output, entry=entry)) == Credential("t", expires_at=1_767_225_600)
    assert (tmp_path / "arguments").read_text() == "x y b\n"
    assert info(tmp_path) == {"apiVersion": _V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    # as some programs write it
    assert exec_plugin.run(settings(tmp_path, printed(token="t"), entry={"args": None, "env": None})).token == "t"


@pytest.mark.parametrize("is_file", [True, False])
def test_it_is_given_the_cluster_if_it_asks_for_it(is_file: bool, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    authority: dict[str, Any] = {"ca_file": str(tmp_path / "ca.crt")} if is_file else {"ca_data": "PEM"}
    more: dict[str, Any] = {"tls_server_name": "name", "proxy_url": "http://proxy", "exec_config": {"audience": "7"}}
    entry = {"provideClusterInfo": True}
    exec_plugin.run(settings(tmp_path, printed(token="t"), entry=entry, **authority, **more))
    assert info(tmp_path)["spec"]["cluster"] == {
        "server": "https://api",
        "tls-server-name": "name",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "proxy-url": "http://proxy",
        "config": {"audience": "7"},
    }


@pytest.mark.parametrize(
    ("output", "status", "entry", "problem", "remedy"),
    [
        ("", 0, {"command": "./none"}, "./none of user u is not installed", "install ./none"),
        ("", 0, {"command": "./none", "installHint": " get it\x1b[0m\n"}, "is not installed", "get it\\x1b[0m"),
        ("", 0, {"command": "no-such-program"}, "no-such-program of user u is not installed", "install"),
        ("", 3, {}, "ended with status 3", "log in again"),
        ("welcome", 0, {}, "is not an ExecCredential: it is not JSON", "by hand"),
        ("[]", 0, {}, "is not an ExecCredential", "by hand"),
        (printed(), 0, {}, "neither a token nor a certificate", "by hand"),
        (printed(clientKeyData="k", token="t"), 0, {}, "neither a token nor a certificate", "by hand"),
        (printed(token="t", expirationTimestamp="soon"), 0, {}, "an invalid expirationTimestamp", "by hand"),
        (printed(token="t"), 0, {"apiVersion": f"{_V1}beta1"}, "another apiVersion", "correct the apiVersion"),
        (printed(token="t"), 0, {"args": ["\0"]}, "does not start: an argument or variable is invalid", "correct"),
        (printed(token="t"), 0, {"interactiveMode": "Always"}, "needs a terminal", "at a terminal"),
    ],
)
def test_it_gives_nothing(
    output: str, status: int, entry: dict[str, Any], problem: str, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(CredentialProblem) as refused:
        exec_plugin.run(settings(tmp_path, output, status=status, entry=entry))
    assert problem in refused.value.problem
    assert remedy in refused.value.remedy


@pytest.mark.parametrize("ending", ["", "exec >&- 2>&-\n"])
def test_another_program_that_it_leaves_behind_keeps_nothing_open(ending: str, tmp_path: Path) -> None:
    made, login = settings(tmp_path, printed(token="t")), tmp_path / "login"
    leaving = f"sleep 60 &\necho $! > {tmp_path}/left\n{ending}exit 0"
    login.write_text(login.read_text().replace("exit 0", leaving))
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    try:
        assert exec_plugin.run(made, timeout_seconds=120) == Credential("t")
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_one_that_hangs_behind_another_is_given_up(tmp_path: Path) -> None:
    made = settings(tmp_path, "")
    (tmp_path / "login").write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/left\nwait\n")
    try:
        with pytest.raises(CredentialProblem, match="did not end within"):
            exec_plugin.run(made, timeout_seconds=0.5)
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


def test_a_line_without_an_end_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, login = settings(tmp_path, printed(token="t")), tmp_path / "login"
    login.write_text(login.read_text().replace("#!/bin/sh", "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' x >&2"))
    assert exec_plugin.run(made, timeout_seconds=60).token == "t"
    assert capsys.readouterr().err == "x" * 20_000_000
