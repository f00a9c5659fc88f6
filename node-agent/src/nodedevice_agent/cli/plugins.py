"""`nodedevice-agent gpu` and `simulate`: what an administrator changes in the built-in plugins of a running agent."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from nodedevice_agent.cli.options import OneLineErrors, takes_settings
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.plugins.nvml import boot_memory as memory
from nodedevice_agent.plugins.nvml.fleet import Remembered
from nodedevice_agent.plugins.simulated import control
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir")
_resource = click.argument("resource")


class _PluginErrors(OneLineErrors):
    mistakes = (AgentSettingsError, memory.MemoryUnreadable, control.SimulateError)


@click.group(cls=_PluginErrors)
def gpu() -> None:
    """Show and clear GPUs of the nvml plugin on this node."""


@gpu.command("show")
@_node_settings
def show_gpus(settings: AgentSettings) -> None:
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
    """Raises MemoryUnreadable."""
    return {known.gpu.uuid: known for known in memory.read(state_dir)}


@click.group(cls=_PluginErrors)
def simulate() -> None:
    """Change health and presence of the devices of a resource under `simulated` in the agent's settings."""


def _device_command(name: str, text: str, change: Callable[[Path, str, str], None]) -> None:
    @simulate.command(name, help=text)
    @_node_settings
    @_resource
    @click.argument("device")
    def command(settings: AgentSettings, resource: str, device: str) -> None:
        change(Path(settings.state_dir), resource, device)


_device_command("break", "Make DEVICE unhealthy.", partial(control.set_health, healthy=False))
_device_command("recover", "Make DEVICE healthy again.", partial(control.set_health, healthy=True))
_device_command("remove", "Remove DEVICE: it is no longer listed.", partial(control.set_missing, missing=True))
_device_command("return", "Add a removed DEVICE back.", partial(control.set_missing, missing=False))


@simulate.command("show")
@_node_settings
@_resource
def show_simulated(settings: AgentSettings, resource: str) -> None:
    """List the devices of RESOURCE and their state."""
    for device, state in control.show(Path(settings.state_dir), resource).items():
        click.echo(f"{device}\t{state}")
