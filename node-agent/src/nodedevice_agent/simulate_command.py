"""`nodedevice-agent simulate`: break, mend, remove and return simulated devices, to try things out."""

from pathlib import Path

import click

from nodedevice_agent.plugins import control
from nodedevice_agent.plugins.control import SimulateError
from nodedevice_agent.settings import Settings

_state_dir = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=Settings().state_dir,
    envvar="NODEDEVICE_STATE_DIR",
    show_envvar=True,
    show_default=True,
    help="The running agent's --state-dir.",
)
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
@_state_dir
@_resource
@_device
def break_(state_dir: Path, resource: str, device: str) -> None:
    """Make DEVICE unhealthy."""
    control.set_health(state_dir, resource, device, healthy=False)


@simulate.command()
@_state_dir
@_resource
@_device
def mend(state_dir: Path, resource: str, device: str) -> None:
    """Make DEVICE healthy again."""
    control.set_health(state_dir, resource, device, healthy=True)


@simulate.command()
@_state_dir
@_resource
@_device
def remove(state_dir: Path, resource: str, device: str) -> None:
    """Pull DEVICE out: it is no longer listed."""
    control.set_missing(state_dir, resource, device, missing=True)


@simulate.command("return")
@_state_dir
@_resource
@_device
def return_(state_dir: Path, resource: str, device: str) -> None:
    """Put DEVICE back."""
    control.set_missing(state_dir, resource, device, missing=False)


@simulate.command()
@_state_dir
@_resource
def show(state_dir: Path, resource: str) -> None:
    """List the devices of RESOURCE and what is simulated of each."""
    for device in control.show(state_dir, resource):
        state = "missing" if device.is_missing else "healthy" if device.is_healthy else "unhealthy"
        click.echo(f"{device.id}\t{state}")
