"""`python -m tests.cluster`: builds the control plane's programs, or runs a control plane in the foreground."""

import signal
import sys
from pathlib import Path

import click

from tests.cluster.build.binaries import ALL_PROGRAMS, find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ClusterError


@click.group()
def main() -> None:
    """A real Kubernetes control plane for tests."""


@main.command()
@click.argument("names", nargs=-1)
def build(names: tuple[str, ...]) -> None:
    """Find, download or build the programs NAMES (default: all) and print where each is.

    KUBEBUILDER_ASSETS: a folder of ready programs that come first. XDG_CACHE_HOME: where the others are kept (default
    ~/.cache). BINARIES: build or download; by default, programs that can be reached within seconds are downloaded.
    BINARIES_MIRROR: a prefix of each address. KUBERNETES: another version than the pinned one, as 1.36.3.
    """
    for name, path in find(names or ALL_PROGRAMS, _progress).items():
        click.echo(f"{name}\t{path}")


@main.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Made for this run, removed at its end.")
def up(folder: Path) -> None:
    """Run a control plane in the foreground until SIGINT or SIGTERM."""
    with ControlPlane.start(folder, _progress) as control_plane:
        click.echo(f"export KUBECONFIG={control_plane.admin_kubeconfig}")
        control_plane.wait()


def _progress(line: str) -> None:
    click.echo(line, err=True)


def run() -> int:
    # Both end it in order, including the folder. SIGINT is set as well: a shell starts background processes with SIGINT
    # ignored.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    try:
        main(standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return 0
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except ClusterError as exc:
        _progress(str(exc))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
