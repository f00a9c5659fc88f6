"""The command line. A command is imported when it is used."""

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click
from nodedevice_kube.api_errors import ApiError

from kubectl_nodedevice import __version__
from kubectl_nodedevice.errors import FAILED, FINE, INTERRUPTED, CliError, UsageProblem
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.session import current, shared_options

NAME: Final = "kubectl nodedevice"
# the place of each command
COMMANDS: Final[Mapping[str, str]] = {
    "open": "kubectl_nodedevice.page.command:open_page",
    "nodes": "kubectl_nodedevice.commands.nodes:nodes",
    "devices": "kubectl_nodedevice.commands.devices:devices",
    "holders": "kubectl_nodedevice.commands.holders:holders",
    "why": "kubectl_nodedevice.why.command:why",
    "cordon": "kubectl_nodedevice.commands.cordon:cordon",
    "uncordon": "kubectl_nodedevice.commands.cordon:uncordon",
    "discover": "kubectl_nodedevice.commands.discover:discover",
    "check": "kubectl_nodedevice.commands.check:check",
    "config": "kubectl_nodedevice.commands.config:config",
    "completion": "kubectl_nodedevice.commands.completion:completion",
    "__complete": "kubectl_nodedevice.commands.completion:complete",
}
# the variable of a shell that requests completions
COMPLETION: Final = "_KUBECTL_NODEDEVICE_COMPLETE"
# exit status of a process that a closed pipe ends, as in shells
_CLOSED_PIPE: Final = 141


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, name = place.split(":")
        command: Any = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises NoSuchCommand with near names of COMMANDS: click itself suggests only imported commands."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as exc:
            names = [name for name in COMMANDS if not name.startswith("_")]
            raise click.exceptions.NoSuchCommand(exc.command_name, possibilities=names, ctx=ctx) from None


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
@click.pass_context
def root(context: click.Context) -> int:
    """Show the devices of a cluster, and explain why a pod or a device cannot be used.

    Without a command: the whole cluster on one screen, and the objects that need attention. Exit status: 0 if nothing needs
    attention, 1 if something does, 2 if the command failed.
    """
    if context.invoked_subcommand:
        return FINE
    from kubectl_nodedevice.commands.overview import overview

    return overview(current(context))


root.params += shared_options()


def run(arguments: list[str]) -> int:
    _make_streams_safe()
    sys.excepthook = _report_bug
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        return _CLOSED_PIPE
    except OSError as exc:
        # Usually a full disk. Other failures have been reported before.
        _forget_output()
        Screen().fail(CliError(f"the output cannot be written: {exc.strerror or exc}", "make room for it"))
        return FAILED
    return status


def _make_streams_safe() -> None:
    """Replace characters that the terminal lacks. Replace closed streams."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # open as long as the process is
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _report_bug(kind: type[BaseException], exc: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback without secrets and control characters."""
    import traceback

    for line in "".join(traceback.format_exception(kind, exc, trace)).splitlines():
        Screen().note(line)


def _forget_output() -> None:
    """Drop the buffer: its reader is gone, and Python would report that at the end."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(arguments: list[str]) -> int:
    screen = Screen()
    if COMPLETION in os.environ:
        from kubectl_nodedevice.commands.completion import asked_by_shell

        return asked_by_shell(root, os.environ[COMPLETION])
    try:
        # main() handles a closed pipe in its own way
        with root.make_context(NAME, arguments) as context:
            result = root.invoke(context)
    except (CliError, ApiError) as exc:
        screen.fail(exc)
        return FAILED
    except ImportError as exc:
        problem = f"a part of this program is missing: {exc.name or exc}"
        screen.fail(CliError(problem, f"install it again; it is in {Path(__file__).parents[1]}, which you can remove"))
        return FAILED
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as exc:
        for line in exc.format_message().splitlines():
            screen.note(line)
        return FAILED
    except click.ClickException as exc:
        where = exc.ctx.command_path if isinstance(exc, click.UsageError) and exc.ctx else NAME
        screen.fail(UsageProblem(exc.format_message().rstrip("."), f"{where} --help shows how"))
        return FAILED
    return result if isinstance(result, int) else FINE
