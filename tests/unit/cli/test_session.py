"""kubectl's own flags: where each may stand."""

from typing import Any

import click
import pytest
from kubectl_nodedevice.session import Command, Flags, Session, current, shared_options


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
