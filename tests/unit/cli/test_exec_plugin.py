"""The program that a kubeconfig logs in by: how it is asked, and each way in which it gives nothing."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from kubectl_nodedevice import exec_plugin
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.exec_plugin import Credential
from kubectl_nodedevice.kubeconfig import Login

_V1: Final = "client.authentication.k8s.io/v1"


class Program:
    """What it prints, and with which status it ends. asked: arguments and environment, each time."""

    def __init__(self) -> None:
        self.output: Any = {"status": {"token": "t"}}
        self.status = 0
        self.error: OSError | None = None
        self.asked: list[tuple[list[str], dict[str, str]]] = []

    def run(self, arguments: list[str], environment: dict[str, str]) -> tuple[int, bytes]:
        self.asked.append((arguments, environment))
        if self.error is not None:
            raise self.error
        return self.status, self.output if isinstance(self.output, bytes) else json.dumps(self.output).encode()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    """There is a file for it, in the folder of the kubeconfig and in PATH."""
    made = Program()
    file = tmp_path / "login"
    file.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(exec_plugin, "_done", made.run)
    return made


def login(folder: Path, **entry: Any) -> Login:
    whole = {"apiVersion": _V1, "command": "login", **entry}
    more: dict[str, Any] = {"ca_data": "ca", "is_insecure": True, "tls_server_name": "name"}
    return Login("https://api", "kubeconfig", user="u", exec_plugin=whole, exec_folder=str(folder), **more)


def asked_of(program: Program) -> tuple[list[str], Any]:
    """The last arguments, and what the environment says of the cluster."""
    arguments, environment = program.asked[-1]
    return arguments, json.loads(environment["KUBERNETES_EXEC_INFO"])


@pytest.mark.parametrize("command", ["login", "./login"])
@pytest.mark.parametrize("version", [_V1, f"{_V1}beta1"])
def test_how_it_is_asked(command: str, version: str, program: Program, tmp_path: Path) -> None:
    env = [{"name": "A", "value": "b"}, {"value": "unnamed"}]
    found = exec_plugin.run(login(tmp_path, command=command, apiVersion=version, args=["x", "y"], env=env))
    assert found == Credential("t")
    arguments, info = asked_of(program)
    assert (Path(arguments[0]), arguments[1:]) == (tmp_path / "login", ["x", "y"])
    assert info == {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = program.asked[-1][1]
    assert (environment["A"], environment["PATH"]) == ("b", str(tmp_path))
    assert "" not in environment


def test_it_gets_the_cluster_where_it_asks_for_it(program: Program, tmp_path: Path) -> None:
    exec_plugin.run(login(tmp_path, provideClusterInfo=True))
    assert asked_of(program)[1]["spec"]["cluster"] == {
        "server": "https://api",
        "certificate-authority-data": "ca",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "name",
    }
    authority = tmp_path / "ca"
    authority.write_bytes(b"PEM")
    more: dict[str, Any] = {"ca_file": str(authority), "proxy": "http://p", "exec_config": {"audience": "7"}}
    whole = Login("https://api", "k", exec_plugin=login(tmp_path, provideClusterInfo=True).exec_plugin, **more)
    exec_plugin.run(whole)
    assert asked_of(program)[1]["spec"]["cluster"] == {
        "server": "https://api",
        "certificate-authority-data": "UEVN",
        "proxy-url": "http://p",
        "config": {"audience": "7"},
    }
    plain = Login("https://api", "k", exec_plugin=login(tmp_path, provideClusterInfo=True).exec_plugin)
    exec_plugin.run(plain)
    assert asked_of(program)[1]["spec"]["cluster"] == {"server": "https://api"}


@pytest.mark.parametrize(
    ("mode", "is_terminal", "is_interactive"),
    [("", True, True), ("IfAvailable", True, True), ("Always", True, True), ("Never", True, False), ("", False, False)],
)
def test_it_may_speak_with_a_person_who_is_there(
    mode: str,
    is_terminal: bool,
    is_interactive: bool,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal, raising=False)
    exec_plugin.run(login(tmp_path, interactiveMode=mode))
    assert asked_of(program)[1]["spec"]["interactive"] is is_interactive


def test_what_it_may_give(program: Program, tmp_path: Path) -> None:
    program.output = {"status": {"clientCertificateData": "c", "clientKeyData": "k"}}
    assert exec_plugin.run(login(tmp_path)) == Credential("", "c", "k")


def test_what_it_says_is_shown_as_other_text_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A question as well, which has no end of the line."""
    file = tmp_path / "login"
    words = "printf 'a\\033[31m b\\n--token SECRET\\nwhich? ' >&2"
    file.write_text(f'#!/bin/sh\n{words}\necho \'{{"status": {{"token": "t"}}}}\'\n')
    file.chmod(0o755)
    assert exec_plugin.run(login(tmp_path, command="./login")) == Credential("t")
    assert capfd.readouterr() == ("", "a[31m b\n--token ***\nwhich? ")


def refused(found: Login) -> tuple[str, str]:
    with pytest.raises(LoginProblem) as error:
        exec_plugin.run(found)
    return error.value.problem, error.value.remedy


@pytest.mark.parametrize(
    ("entry", "problem", "remedy"),
    [
        ({"apiVersion": "v0"}, "the login program of user u speaks v0", f"it has to be {_V1}"),
        ({"apiVersion": ""}, "the login program of user u speaks no version", f"it has to be {_V1}"),
        (
            {"command": "none"},
            "user u logs in by the program none, which is not installed",
            "install none, or correct the user in the kubeconfig",
        ),
        (
            {"command": "./none", "installHint": " get it\n"},
            "user u logs in by the program ./none, which is not installed",
            "get it",
        ),
        (
            {"command": ""},
            "user u logs in by the program (none), which is not installed",
            "install , or correct the user in the kubeconfig",
        ),
    ],
)
def test_a_program_that_cannot_be_asked(
    entry: dict[str, str], problem: str, remedy: str, program: Program, tmp_path: Path
) -> None:
    assert refused(login(tmp_path, **entry)) == (problem, remedy)
    assert not program.asked


def test_a_program_that_gives_nothing(program: Program, tmp_path: Path) -> None:
    program.output = {"status": {"clientKeyData": "k"}}
    assert refused(login(tmp_path)) == (
        "the login program login gave neither a token nor a certificate",
        "run it by hand to see why",
    )
    program.output = b"welcome"
    problem, remedy = refused(login(tmp_path))
    assert problem.startswith("what the login program login printed is no ExecCredential: it is not JSON")
    assert remedy == "run it by hand"
    program.status = 3
    assert refused(login(tmp_path)) == (
        "the login program login ended with status 3",
        "log in again, as it says above",
    )
    program.error = PermissionError(13, "Permission denied")
    assert refused(login(tmp_path)) == (
        f"the login program {tmp_path / 'login'} does not start: Permission denied",
        "correct its file",
    )
