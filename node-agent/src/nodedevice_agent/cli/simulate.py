"""`nodedevice-agent simulate`: break, mend, remove and return simulated devices, to try things out."""

from pathlib import Path

import click

from nodedevice_agent.cli.options import takes_settings
from nodedevice_agent.plugins.simulated import control
from nodedevice_agent.plugins.simulated.control import SimulateError
from nodedevice_agent.settings import Settings

_node_settings = takes_settings("state_dir")
_resource = click.argument("resource")
_device = click.argument("device")


class _Plainly(click.Group):
    """What cannot be done is one line on standard error, exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SimulateError as exc:
            raise click.ClickException(str(exc)) from exc


@click.group(cls=_Plainly)
def simulate() -> None:
    """Break, mend, remove and return the devices of a resource under `simulated` in the agent's settings."""


@simulate.command("break")
@_node_settings
@_resource
@_device
def break_(settings: Settings, resource: str, device: str) -> None:
    """Make DEVICE unhealthy."""
    control.set_health(Path(settings.state_dir), resource, device, healthy=False)


@simulate.command()
@_node_settings
@_resource
@_device
def mend(settings: Settings, resource: str, device: str) -> None:
    """Make DEVICE healthy again."""
    control.set_health(Path(settings.state_dir), resource, device, healthy=True)


@simulate.command()
@_node_settings
@_resource
@_device
def remove(settings: Settings, resource: str, device: str) -> None:
    """Pull DEVICE out: it is no longer listed."""
    control.set_missing(Path(settings.state_dir), resource, device, missing=True)


@simulate.command("return")
@_node_settings
@_resource
@_device
def return_(settings: Settings, resource: str, device: str) -> None:
    """Put DEVICE back."""
    control.set_missing(Path(settings.state_dir), resource, device, missing=False)


@simulate.command()
@_node_settings
@_resource
def show(settings: Settings, resource: str) -> None:
    """List the devices of RESOURCE and what is simulated of each."""
    for device in control.show(Path(settings.state_dir), resource):
        state = "missing" if device.is_missing else "healthy" if device.is_healthy else "unhealthy"
        click.echo(f"{device.id}\t{state}")
