"""`nodedevice-agent runtime`: show which runtime a node keeps for `--runtime auto`, and have it keep another.

Reads and writes the state directory, and reads the kubelet's; the agent takes notice when it starts again.
"""

from pathlib import Path

import click
from nodedevice_api.names import RUNTIME_KUBELET

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.cli.options import takes_settings
from nodedevice_agent.devicemanager.state import CheckpointCorrupt
from nodedevice_agent.errors import SettingsError
from nodedevice_agent.runtime import selected_runtime
from nodedevice_agent.runtime.selection import CHOICES, Evidence, choose
from nodedevice_agent.settings import Settings

_node_settings = takes_settings("state_dir", "kubelet_dir", "nri_socket")


class _Plainly(click.Group):
    """What cannot be done is one line on standard error, exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SettingsError as exc:
            raise click.ClickException(str(exc)) from exc


@click.group(cls=_Plainly)
def runtime() -> None:
    """Show or change the runtime that this node keeps for --runtime auto."""


@runtime.command()
@_node_settings
def show(settings: Settings) -> None:
    """Print the runtime and why it is that; or which one the next start would choose."""
    found = _evidence(settings)
    choice = choose(found)
    if found.stored:
        click.echo(f"{found.stored}: kept in {Path(settings.state_dir) / selected_runtime.FILE_NAME}")
    else:
        click.echo(f"{choice.runtime}: not kept yet; would be chosen because {choice.reason}")
    shared = found.shared_names
    if shared:
        click.echo(f"the kubelet's checkpoint knows: {', '.join(shared)}")


@runtime.command()
@_node_settings
@click.option("--to", "to", type=click.Choice(CHOICES), required=True, help="The runtime from the next start on.")
@click.option(
    "--even-if-held", is_flag=True, help="Although pods hold devices: theirs are not told from free ones then."
)
def move(settings: Settings, to: str, even_if_held: bool) -> None:
    """Keep another runtime from the agent's next start on. The node has to be drained of pods with devices."""
    state_dir = Path(settings.state_dir)
    held = 0 if even_if_held else _held(state_dir)
    if held:
        raise click.ClickException(
            f"{held} containers of this node hold devices that the other side knows nothing of: "
            "drain the node first, or say --even-if-held"
        )
    selected_runtime.write(state_dir, to)
    click.echo(f"{to}: kept in {state_dir / selected_runtime.FILE_NAME}; start the agent again")
    known = _evidence(settings)
    shared = known.shared_names
    if to != RUNTIME_KUBELET and shared:
        click.echo(
            f"the kubelet still knows {', '.join(shared)}: it forgets them five minutes after the agent has left it, "
            "and then they have to be taken off the Node's status (docs/operations.md)"
        )


def _evidence(settings: Settings) -> Evidence:
    """What the agent's next start will choose by. Raises SettingsError."""
    return selected_runtime.evidence(
        Path(settings.state_dir),
        Path(settings.kubelet_dir),
        Path(settings.nri_socket),
        settings.plugins.resource_names(),
    )


def _held(state_dir: Path) -> int:
    """Raises ClickException where nobody can say."""
    try:
        checkpoint = checkpoint_file.read(state_dir)
    except CheckpointCorrupt as exc:
        raise click.ClickException(
            f"who holds devices cannot be read from {state_dir / checkpoint_file.FILE_NAME} ({exc}): "
            "drain the node and say --even-if-held"
        ) from exc
    return len(checkpoint.allocations) if checkpoint is not None else 0
