"""Completes commands and flags for shells, and for kubectl, which runs a program of its own for each plugin."""

from typing import Final

import click

from kubectl_nodedevice.errors import FINE
from kubectl_nodedevice.program import COMPLETION
from kubectl_nodedevice.session import Command, current

_PROGRAM: Final = "kubectl-nodedevice"
# kubectl runs kubectl_complete-PLUGIN. It expects cobra's form: a line for each word, then a directive; 4 means "no files".
_FOR_KUBECTL: Final = f'#!/bin/sh\nexec {_PROGRAM} __complete "$@"'
_NO_FILES: Final = ":4"


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "kubectl"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script of a shell, or the program kubectl_complete-nodedevice for completion by kubectl."""
    screen = current(context).screen
    if shell == "kubectl":
        lines = _FOR_KUBECTL
    else:
        from click.shell_completion import get_completion_class

        found = get_completion_class(shell)
        assert found is not None
        lines = found(context.find_root().command, {}, _PROGRAM, COMPLETION).source()
    screen.block(lines)
    return FINE


@click.command(
    name="__complete", hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def complete(context: click.Context, words: tuple[str, ...]) -> int:
    """Print completions for kubectl. words: the typed ones; the last one is incomplete."""
    from click.shell_completion import ShellComplete

    asked = ShellComplete(context.find_root().command, {}, _PROGRAM, COMPLETION)
    screen = current(context).screen
    for each in asked.get_completions(list(words[:-1]), words[-1] if words else ""):
        screen.block(f"{each.value}\t{each.help}" if each.help else each.value)
    screen.block(_NO_FILES)
    return FINE


def asked_by_shell(root: click.Command, instruction: str) -> int:
    """Complete for a shell that has the script of `completion`. Return the exit status."""
    from click.shell_completion import shell_complete

    return shell_complete(root, {}, _PROGRAM, COMPLETION, instruction)
