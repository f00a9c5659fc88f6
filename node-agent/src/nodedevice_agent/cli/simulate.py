"""`nodedevice-agent simulate`: changes health and presence of simulated devices."""

from pathlib import Path

import click

from nodedevice_agent.cli.options import takes_settings
from nodedevice_agent.plugins.simulated import control
from nodedevice_agent.plugins.simulated.control import SimulateError
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir")
_resource = click.argument("resource")
_device = click.argument("device")


class _SimulateGroup(click.Group):
    """Reports SimulateError as one line on standard error, exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SimulateError as exc:
            raise click.ClickException(str(exc)) from exc


@click.group(cls=_SimulateGroup)
def simulate() -> None:
    """Change health and presence of the devices of a resource under `simulated` in the agent's settings."""


@simulate.command("break")
@_node_settings
@_resource
@_device
def break_(settings: AgentSettings, resource: str, device: str) -> None:
    """Make DEVICE unhealthy."""
    control.set_health(Path(settings.state_dir), resource, device, healthy=False)


@simulate.command()
@_node_settings
@_resource
@_device
def recover(settings: AgentSettings, resource: str, device: str) -> None:
    """Make DEVICE healthy again."""
    control.set_health(Path(settings.state_dir), resource, device, healthy=True)


@simulate.command()
@_node_settings
@_resource
@_device
def remove(settings: AgentSettings, resource: str, device: str) -> None:
    """Remove DEVICE: it is no longer listed."""
    control.set_missing(Path(settings.state_dir), resource, device, missing=True)


@simulate.command("return")
@_node_settings
@_resource
@_device
def return_(settings: AgentSettings, resource: str, device: str) -> None:
    """Add a removed DEVICE back."""
    control.set_missing(Path(settings.state_dir), resource, device, missing=False)


@simulate.command()
@_node_settings
@_resource
def show(settings: AgentSettings, resource: str) -> None:
    """List the devices of RESOURCE and their state."""
    for device, state in control.show(Path(settings.state_dir), resource).items():
        click.echo(f"{device}\t{state}")
