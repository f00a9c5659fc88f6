"""`nodedevice-agent gpu`: what an administrator changes in the nvml plugin of a running agent."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from nodedevice_agent.plugins.nvml import boot_memory as memory
from nodedevice_agent.plugins.nvml import driver_release
from nodedevice_agent.plugins.nvml.node_gpus import Remembered

_POLL_SECONDS = 0.1


@click.group("gpu")
def group() -> None:
    """Show and clear GPUs of the nvml plugin on this node, and release their driver."""


@group.command("show")
def show_gpus(state_dir: Path) -> None:
    """List the GPUs seen since the node booted, and what each one needs."""
    for known in _known(state_dir).values():
        state = known.mark.message if known.mark else "gone" if known.is_away else "no mark"
        click.echo(f"{known.gpu.uuid}\t{known.gpu.pci_bus_id}\t{known.gpu.model}\t{state}")


@group.command()
@click.argument("uuid")
def clear(state_dir: Path, uuid: str) -> None:
    """Mark the GPU UUID as healthy although no reset was detected, or forget a GPU that was removed for good."""
    known = _known(state_dir)
    if uuid not in known:
        raise click.ClickException(
            f"no GPU {uuid[:128]!r} was seen on this node; there are: {', '.join(known) or 'none'}"
        )
    folder = memory.clear_dir(state_dir)
    with _as_error(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / uuid).touch()


@group.command()
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0, 600),
    default=15.0,
    show_default=True,
    help="Seconds to wait until the agent confirms; 0 returns at once.",
)
def release(state_dir: Path, wait_seconds: float) -> None:
    """Close NVIDIA's driver, so that it can be replaced.

    GPUs stay allocated. Free ones are not allocated until `gpu resume`, or until the node reboots.
    """
    with _as_error(state_dir):
        driver_release.request(state_dir)
    until = time.monotonic() + wait_seconds
    while not os.path.exists(driver_release.closed_file(state_dir)):
        if wait_seconds == 0:
            return
        if not time.monotonic() < until:
            raise click.ClickException(
                f"the agent has not confirmed within {wait_seconds:g} s that NVML is closed. The request stays: an agent that is "
                "not running closes it at its start. Check that it runs, has the plugin nvml and this --state-dir, and see why its "
                "GPUs are unhealthy (DriverHangs: reboot the node)"
            )
        time.sleep(_POLL_SECONDS)
    click.echo("NVML is closed. When the driver is loaded again, run: nodedevice-agent gpu resume")


@group.command()
def resume(state_dir: Path) -> None:
    """Open NVIDIA's driver again after `gpu release`."""
    with _as_error(state_dir):
        if not driver_release.withdraw(state_dir):
            click.echo("The driver was not released by this command since the node booted.")


@contextmanager
def _as_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        path = exc.filename or folder
        raise click.ClickException(f"{path}: {exc.strerror}; run this as the user the agent runs as") from exc


def _known(state_dir: Path) -> dict[str, Remembered]:
    return {remembered.gpu.uuid: remembered for remembered in memory.read(state_dir)}
