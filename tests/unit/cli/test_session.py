"""kubectl's own flags: where each may stand."""

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
    ("namespace", "every", "output"), [("-n", "-A", "-o"), ("--namespace", "--all-namespaces", "--output")]
)
def test_each_flag_before_and_after_the_command(namespace: str, every: str, output: str) -> None:
    words = [namespace, "a", every, output, "wide", "--context", "c", "--kubeconfig", "k", "--request-timeout", "2m"]
    words += ["--as", "eve", "--as-group", "a", "--as-group", "b", "--as-uid", "7"]
    flags = Flags("c", "k", "eve", "7", ("a", "b"), "2m", "a", True, "wide")
    for line in ([*words, "show"], ["show", *words]):
        found = typed(*line)
        assert (found.flags, found.command) == (flags, "show")


def test_flags_of_both_places_count_together() -> None:
    assert typed("show").flags == Flags()
    assert typed("-n", "a", "-o", "json", "show", "-n", "b").flags == Flags(namespace="b", output="json")
