"""kubectl's own flags: where each may stand, and what follows from it."""

from typing import Any

import click
import pytest
from kubectl_nodedevice import kubeconfig, session
from kubectl_nodedevice.errors import UsageProblem
from kubectl_nodedevice.session import Command, Flags, Session, current, shared_options
from nodedevice_kube.settings import Impersonation, Settings

LOGIN = Settings("https://api", "kubeconfig", namespace="of-the-context")


def program() -> click.Group:
    """As our own, with one command, which returns what a command has."""

    @click.group(invoke_without_command=True, params=[*shared_options()])
    def group() -> None:
        """Does nothing itself."""

    @group.command(cls=Command)
    @click.pass_context
    def show(context: click.Context) -> Session:
        return current(context)

    return group


def typed(*words: str) -> Session:
    group = program()
    with group.make_context("x", [*words]) as context:
        found = group.invoke(context)
    assert isinstance(found, Session)
    return found


def test_what_help_says_of_each_flag() -> None:
    context = click.Context(program())
    assert [option.get_help_record(context) for option in shared_options()] == [
        ("-n, --namespace NAME", "Namespace of pods; default: the context's."),
        ("-A, --all-namespaces", "Pods of all namespaces."),
        ("-o, --output [wide|json|yaml]", "Form of the output."),
        ("--context NAME", "Context of the kubeconfig; default: the current one."),
        ("--kubeconfig FILE", "Default: KUBECONFIG, else ~/.kube/config."),
        ("--as USER", "Ask as this user."),
        ("--as-group GROUP", "Ask as this group; several times for several."),
        ("--as-uid UID", "Ask as the user of this UID."),
        ("--request-timeout DURATION", "Limit of one request, such as 30s; 0 for none."),
    ]


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

    def load(*given: str) -> Settings:
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
        assert found.impersonation == Impersonation(flags.as_user, flags.as_uid, flags.as_groups)
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
    account = Settings("https://api", "the pod's account", account=session._OPERATORS_ACCOUNT)
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
    assert (used.api.timeout_seconds, used.api.credentials.settings, used.screen.form) == (120.0, LOGIN, "json")
    closed: list[bool] = []
    used.api.close = lambda: closed.append(True)  # type: ignore[method-assign]
    used.close()
    assert closed == [True]


def test_a_connection_ends_with_its_command_line(login: list[tuple[str, str]]) -> None:
    group = program()
    closed: list[bool] = []
    with group.make_context("x", ["show"]) as context:
        group.invoke(context).api.close = lambda: closed.append(True)
        assert not closed
    assert closed == [True]
