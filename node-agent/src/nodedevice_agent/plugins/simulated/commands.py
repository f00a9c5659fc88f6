"""`nodedevice-agent simulate`: what an administrator changes in simulated devices of a running agent."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from nodedevice_agent.plugins.simulated import control

_resource = click.argument("resource")


@click.group("simulate")
def group() -> None:
    """Change health and presence of the devices of a resource under `simulated` in the agent's settings."""


def _device_command(name: str, text: str, change: Callable[[Path, str, str], None]) -> None:
    @group.command(name, help=text)
    @_resource
    @click.argument("device")
    def command(state_dir: Path, resource: str, device: str) -> None:
        change(state_dir, resource, device)


_device_command("break", "Make DEVICE unhealthy.", partial(control.set_health, healthy=False))
_device_command("recover", "Make DEVICE healthy again.", partial(control.set_health, healthy=True))
_device_command("remove", "Remove DEVICE from the list.", partial(control.set_missing, missing=True))
_device_command("return", "Add a removed DEVICE back.", partial(control.set_missing, missing=False))


@group.command("show")
@_resource
def show_simulated(state_dir: Path, resource: str) -> None:
    """List the devices of RESOURCE and their state."""
    for device, state in control.show(state_dir, resource).items():
        click.echo(f"{device}\t{state}")
