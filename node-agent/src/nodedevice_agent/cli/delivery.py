"""`nodedevice-agent delivery`: shows and changes the delivery that a node has selected for `--delivery auto`.

Reads and writes the state directory, and reads the kubelet's; the agent applies the change at its next start.
"""

from pathlib import Path

import click
from nodedevice_api.names import DELIVERY_KUBELET

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.cli.options import OneLineErrors, takes_settings
from nodedevice_agent.delivery import stored
from nodedevice_agent.delivery.selection import CHOICES, choose
from nodedevice_agent.devicemanager.records.checkpoint import CheckpointCorrupt
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir", "kubelet_dir", "nri_socket")


@click.group(cls=OneLineErrors)
def delivery() -> None:
    """Show or change the delivery that this node has selected for --delivery auto."""


@delivery.command()
@_node_settings
def show(settings: AgentSettings) -> None:
    """Print the selected delivery, or the one that the next start would select, and why."""
    found = stored.evidence(settings)
    choice, reason = choose(found)
    if found.stored:
        click.echo(f"{found.stored}: stored in {Path(settings.state_dir) / stored.FILE_NAME}")
    else:
        click.echo(f"{choice}: not stored yet; would be selected because {reason}")
    if found.shared_names:
        click.echo(f"the kubelet's checkpoint contains: {', '.join(found.shared_names)}")


@delivery.command()
@_node_settings
@click.option(
    "--to", "to", type=click.Choice(CHOICES), required=True, help="The delivery from the next start of the agent on."
)
@click.option(
    "--even-if-held", is_flag=True, help="Even if devices are in use, which may then be allocated a second time."
)
def move(settings: AgentSettings, to: str, even_if_held: bool) -> None:
    """Select another delivery for the agent's next start. Drain the node of pods with devices first."""
    state_dir = Path(settings.state_dir)
    held = 0 if even_if_held else _held(state_dir, to)
    if held:
        why = "containers of this node hold devices that the other delivery does not know"
        raise click.ClickException(f"{held} {why}: drain the node first, or use --even-if-held")
    stored.write(state_dir, to)
    click.echo(f"{to}: stored in {state_dir / stored.FILE_NAME}; restart the agent")
    shared = stored.evidence(settings).shared_names
    if to != DELIVERY_KUBELET and shared:
        drops = "it drops them five minutes after the agent has disconnected from it"
        remedy = "then they have to be removed from the Node's status (docs/delivery.md)"
        click.echo(f"the kubelet still has {', '.join(shared)}: {drops}, and {remedy}")


def _held(state_dir: Path, to: str) -> int:
    """Number of containers with devices of another delivery. Raises ClickException when the checkpoint cannot be read."""
    try:
        checkpoint = checkpoint_file.read(state_dir)
    except CheckpointCorrupt as exc:
        why = f"allocations cannot be read from {state_dir / checkpoint_file.FILE_NAME} ({exc})"
        raise click.ClickException(f"{why}: drain the node and use --even-if-held") from exc
    return sum(a.delivery != to for a in checkpoint.allocations) if checkpoint is not None else 0
