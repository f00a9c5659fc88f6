"""`nodedevice-operator check`, kept for scripts; its successor is `kubectl nodedevice check`."""

import click

_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_ARGUMENTS)
def check() -> None:
    """Moved: use kubectl nodedevice check."""
    raise click.UsageError(
        "check is a command of kubectl nodedevice now: kubectl nodedevice check, or in this image kubectl-nodedevice check"
    )
