"""kubectl's own flags: where each may stand, and what follows from it."""

from typing import Any

import click
import pytest
from kubectl_nodedevice import kubeconfig, session
from kubectl_nodedevice.errors import UsageProblem
from kubectl_nodedevice.kubeconfig import Login
from kubectl_nodedevice.session import Command, Flags, Session, current, shared_options

LOGIN = Login("https://api", "kubeconfig", namespace="of-the-context")


@click.group(invoke_without_command=True)
def group() -> None:
    """As the program's own."""


@group.command(cls=Command)
@click.pass_context
def show(context: click.Context) -> Session:
    """Returns what a command has."""
    return current(context)


group.params += shared_options()


def typed(*words: str) -> Session:
    with group.make_context("x", [*words]) as context:
        found = group.invoke(context)
    assert isinstance(found, Session)
    return found


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], {}),
        (["-n", "a"], {"namespace": "a"}),
        (["--namespace", "a"], {"namespace": "a"}),
        (["-A"], {"is_all_namespaces": True}),
        (["--all-namespaces"], {"is_all_namespaces": True}),
        (["-o", "wide"], {"output": "wide"}),
        (["--output", "json"], {"output": "json"}),
        (["-o", "yaml"], {"output": "yaml"}),
        (["--context", "c"], {"context": "c"}),
        (["--kubeconfig", "k"], {"kubeconfig": "k"}),
        (["--as", "eve"], {"as_user": "eve"}),
        (["--as-group", "a", "--as-group", "b"], {"as_groups": ("a", "b")}),
        (["--as-uid", "7"], {"as_uid": "7"}),
        (["--request-timeout", "2m"], {"request_timeout": "2m"}),
    ],
)
def test_each_flag_before_and_after_the_command(words: list[str], flags: dict[str, Any]) -> None:
    for line in ([*words, "show"], ["show", *words]):
        found = typed(*line)
        assert (found.flags, found.command) == (Flags(**flags), "show")


def test_flags_of_both_places_count_together() -> None:
    assert typed("-n", "a", "-o", "json", "show", "-n", "b").flags == Flags(namespace="b", output="json")


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was asked for."""
    asked: list[tuple[str, str]] = []

    def load(*given: str) -> Login:
        asked.append((given[0], given[1]))
        return LOGIN

    monkeypatch.setattr(kubeconfig, "load", load)
    return asked


def test_the_login_is_read_once_and_may_be_somebody_elses(login: list[tuple[str, str]]) -> None:
    own = Session(Flags(kubeconfig="k", context="c"))
    assert own.login is own.login is LOGIN
    assert login == [("k", "c")]
    for more in ({"as_user": "eve"}, {"as_uid": "7"}, {"as_groups": ("a",)}):
        flags = Flags(**more)
        found = Session(flags).login
        assert (found.as_user, found.as_uid, found.as_groups) == (flags.as_user, flags.as_uid, flags.as_groups)
        assert found.namespace == LOGIN.namespace


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [
        (Flags(), "of-the-context"),
        (Flags(namespace="a"), "a"),
        (Flags(is_all_namespaces=True), ""),
        (Flags(namespace="a", is_all_namespaces=True), ""),
    ],
)
def test_the_namespace(flags: Flags, namespace: str, login: list[tuple[str, str]]) -> None:
    assert Session(flags).namespace == namespace


@pytest.mark.parametrize("command", ["why", "cordon", ""])
def test_the_operators_account_may_do_little(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Login("https://api", "the pod's account", account=session._OPERATORS_ACCOUNT)
    monkeypatch.setattr(kubeconfig, "load", lambda *_: account)
    with pytest.raises(UsageProblem) as error:
        _ = Session(command=command).login
    assert (error.value.code, error.value.problem, error.value.remedy) == (
        "OperatorsPod",
        "this is the operator's account, which may do no more than check, devices and holders",
        "run it as yourself, where kubectl is",
    )
    for allowed in ("check", "devices", "holders"):
        assert Session(command=allowed).login is account


def test_kubectl_is_asked_as_the_same_person() -> None:
    flags = Flags(kubeconfig="k", context="c", as_user="eve", as_uid="7", as_groups=("a", "b"))
    assert Session(flags).kubectl("exec", "pod") == [
        *("kubectl", "--kubeconfig", "k", "--context", "c", "--as", "eve", "--as-uid", "7"),
        *("--as-group", "a", "--as-group", "b", "exec", "pod"),
    ]
    assert Session().kubectl("version") == ["kubectl", "version"]


def test_a_connection_is_ended_where_there_is_one(login: list[tuple[str, str]]) -> None:
    unused, used = Session(), Session(Flags(request_timeout="2m", output="json"))
    unused.close()
    assert not login
    assert (used.api.timeout_seconds, used.api.login, used.screen.form) == (120.0, LOGIN, "json")
    closed: list[bool] = []
    used.api.close = lambda: closed.append(True)  # type: ignore[method-assign]
    used.close()
    assert closed == [True]
