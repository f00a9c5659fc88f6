"""`nodedevice-operator crds apply`: the kinds of this release, put in or brought up to date. What the chart runs before an upgrade.

Helm itself applies a chart's CRDs at install, whatever release those are of that are there already, and never at upgrade.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

from nodedevice_operator import __version__
from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.crd_objects import Definition, Definitions, shipped
from nodedevice_operator.cli.releases import is_older
from nodedevice_operator.errors import Invalid, OlderRelease, OperatorError
from nodedevice_operator.kube import credentials

_SECONDS: Final = 60.0


@click.group()
def crds() -> None:
    """The kinds NodeDevice and PodDevice in the cluster."""


@crds.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--allow-downgrade", is_flag=True, help="Also replace definitions of a newer release by these.")
@click.option(
    "--timeout-seconds", type=click.FloatRange(1, 3600), default=_SECONDS, help="How long all of it may take."
)
def apply(kubeconfig: str | None, allow_downgrade: bool, timeout_seconds: float) -> None:
    """Apply this release's definitions and wait until the API server serves them; nothing is written where a newer one is there."""
    try:
        asyncio.run(_apply(kubeconfig, allow_downgrade, timeout_seconds, click.echo))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error


async def _apply(kubeconfig: str | None, allow_downgrade: bool, seconds: float, say: Callable[[str], None]) -> None:
    client = command.client(credentials.load(kubeconfig))
    try:
        async with command.within(seconds) as progress:
            await _bring(Definitions(client), progress, allow_downgrade, say)
    finally:
        await client.close()


async def _bring(
    definitions: Definitions, progress: command.Progress, allow_downgrade: bool, say: Callable[[str], None]
) -> None:
    bodies = shipped()
    before: dict[str, Definition | None] = {}
    for body in bodies:
        name = body["metadata"]["name"]
        progress.step = f"reading {name}"
        before[name] = found = await progress.patiently(partial(definitions.read, name))
        if found is not None and is_older(__version__, found.release) and not allow_downgrade:
            raise OlderRelease(name, found.release, __version__)
    for body in bodies:
        name = body["metadata"]["name"]
        progress.step = f"applying {name}"
        after = await progress.patiently(partial(definitions.apply, body))
        say(f"{name}: {_what_happened(before[name], after)}")
    for body in bodies:
        progress.step = f"waiting until {body['metadata']['name']} is served"
        await progress.until(partial(_not_served, definitions, body))
    say("the API server serves both")


def _what_happened(before: Definition | None, after: Definition) -> str:
    if before is None:
        return f"made, of release {__version__}"
    if before.metadata.generation == after.metadata.generation and before.release == after.release:
        return f"is of release {__version__} already"
    return f"changed from release {before.release or 'unknown'} to {__version__}"


async def _not_served(definitions: Definitions, body: dict[str, Any]) -> str:
    """What is still missing; "" when nothing is. Raises Invalid where it will never be served."""
    name = body["metadata"]["name"]
    found = await definitions.read(name)
    if found is None:
        return f"{name} was deleted meanwhile"
    if found.refused_names:
        raise Invalid("serve", name, f"another definition has its names: {found.refused_names}")
    return "" if found.is_established else f"{name} is not established yet"
