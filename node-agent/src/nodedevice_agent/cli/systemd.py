"""`nodedevice-agent systemd`: prints and installs the systemd files for an agent outside of pods."""

import os
import sys
from importlib import resources
from pathlib import Path
from typing import Final

import click

from nodedevice_agent.cli.options import OneLineErrors

UNIT: Final = "nodedevice-agent.service"
TMPFILES: Final = "nodedevice.conf"
# the administrator's directory, which upgrades of a distribution's package leave alone
_FOLDERS: Final = {UNIT: Path("etc/systemd/system"), TMPFILES: Path("etc/tmpfiles.d")}
_USUAL_PROGRAM: Final = "/opt/nodedevice/bin/nodedevice-agent"


@click.group(cls=OneLineErrors)
def systemd() -> None:
    """Print or install the systemd files for an agent outside of pods."""


@systemd.command()
@click.argument("name", type=click.Choice([UNIT, TMPFILES]))
def show(name: str) -> None:
    """Print one of the files, as `install` would write it."""
    click.echo(_content(name), nl=False)


@systemd.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/",
    help="The file tree to write into.  [default: /]",
)
def install(root: Path) -> None:
    """Write both files. They name the nodedevice-agent that this command is of; there already: they are replaced.

    It returns when they and that program are on the disk: pip flushes nothing, and a power cut soon after it leaves an empty one.
    """
    for name, folder in _FOLDERS.items():
        target = root / folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_content(name), encoding="utf-8")
        except OSError as exc:
            raise click.ClickException(f"{target}: {exc.strerror}; run it as root") from exc
        click.echo(f"written: {target}")
    os.sync()
    click.echo(
        f"next: systemd-tmpfiles --create {TMPFILES} && systemctl daemon-reload && systemctl enable --now {UNIT}"
    )


def _content(name: str) -> str:
    text = resources.files("nodedevice_agent.systemd").joinpath(name).read_text(encoding="utf-8")
    program = Path(sys.argv[0]).absolute()
    # `python -m nodedevice_agent` has no program file: then the documented path
    return text.replace(_USUAL_PROGRAM, str(program)) if program.name == "nodedevice-agent" else text
