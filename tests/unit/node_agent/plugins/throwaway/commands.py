"""`nodedevice-agent throwaway`."""

from pathlib import Path

import click


@click.group("throwaway")
def group() -> None:
    """Show numbers."""


@group.command("show")
@click.argument("number")
def show(state_dir: Path, number: str) -> None:
    """Print NUMBER."""
    click.echo(f"{state_dir}: {number}")
