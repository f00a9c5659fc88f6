"""`nodedevice-agent gpu`: shows the GPUs that the agent remembers, and marks a GPU as healthy."""

from pathlib import Path

import click

from nodedevice_agent.cli.options import takes_settings
from nodedevice_agent.plugins.nvml.fleet import Remembered
from nodedevice_agent.plugins.nvml.health import boot_memory as memory
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir")


@click.group()
def gpu() -> None:
    """Show and clear GPUs of the nvml plugin on this node."""


@gpu.command()
@_node_settings
def show(settings: AgentSettings) -> None:
    """List the GPUs seen since the node booted, and what each one needs."""
    for known in _known(Path(settings.state_dir)).values():
        state = known.mark.message if known.mark else "gone" if known.is_away else "no mark"
        click.echo(f"{known.gpu.uuid}\t{known.gpu.pci_bus_id}\t{known.gpu.model}\t{state}")


@gpu.command()
@_node_settings
@click.argument("uuid")
def clear(settings: AgentSettings, uuid: str) -> None:
    """Mark the GPU UUID as healthy although no reset was detected, or forget a GPU that was removed for good."""
    state_dir = Path(settings.state_dir)
    known = _known(state_dir)
    if uuid not in known:
        raise click.ClickException(
            f"no GPU {uuid[:128]!r} was seen on this node; there are: {', '.join(known) or 'none'}"
        )
    folder = memory.clear_dir(state_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / uuid).touch()
    except OSError as exc:
        raise click.ClickException(f"{folder}: {exc.strerror}; run this as the user the agent runs as") from exc


def _known(state_dir: Path) -> dict[str, Remembered]:
    """Raises ClickException."""
    try:
        return {known.gpu.uuid: known for known in memory.read(state_dir)}
    except memory.MemoryUnreadable as exc:
        raise click.ClickException(str(exc)) from exc
