"""`nodedevice-agent discover`: which devices this node could offer, and the settings that offer them.

It needs no API server and no running agent. In an agent's pod it reads the host's /sys and /dev, which the chart mounts
read-only. Outside of pods, run it on the node.
"""

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import Final

import click
from msgspec.structs import replace

from nodedevice_agent.cli.options import OneLineCommand, takes_settings
from nodedevice_agent.configs.watch import FILE_NAME, last_known
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.contract import Discovered, part
from nodedevice_agent.plugins.discovery import report
from nodedevice_agent.plugins.discovery.candidates import Facts, candidates
from nodedevice_agent.plugins.discovery.survey import hardware
from nodedevice_agent.plugins.settings import KINDS, PluginSettings
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir")
# the kernel keeps a reader of sysfs waiting for as long as a device hangs
_MOST_SECONDS: Final = 30.0


@click.command(cls=OneLineCommand)
@_node_settings
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="text is for people.")
def discover(settings: AgentSettings, output: str) -> None:
    """List the devices of this node that can be offered, with the lines of settings that offer each."""
    # the list already has the agent's log lines about settings: without a handler Python would print them
    logging.getLogger("nodedevice_agent").addHandler(logging.NullHandler())
    state_dir = Path(settings.state_dir)
    plugins = last_known(settings.plugins, settings.allowed_host_paths, state_dir)
    found, discovered = asyncio.run(_read(plugins))
    vendors = {pci.vendor for pci in found.pci_devices}
    shown = [one for kind, one in discovered.items() if plugins.of(kind) or one.pci_vendor in vendors]
    missing = {name: why for one in discovered.values() for name, why in one.missing.items()}
    notes = [*found.notes, *_not_readable(state_dir), *(one.problem for one in shown if one.problem)]
    every = candidates(replace(found, discovered=tuple(discovered.values())))
    if output == "json":
        click.echo(report.as_json(every, missing, notes))
    else:
        click.echo("\n".join(report.as_text(every, missing, notes)))


async def _read(plugins: PluginSettings) -> tuple[Facts, dict[str, Discovered]]:
    """The devices of the kernel, and of each kind of plugin. Raises click.ClickException."""
    reads = FileReads()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            found = await reads.run(partial(hardware, plugins.host_root.rstrip("/")))
            parts = {kind: module for kind in KINDS if (module := part(kind, "discover")) is not None}
            root = plugins.host_root
            return found, {kind: await each.discover(plugins.of(kind), root, reads) for kind, each in parts.items()}
    except TimeoutError:
        problem = f"no response within {_MOST_SECONDS:g} s: a device hangs; the kernel log (dmesg) names it"
        raise click.ClickException(problem) from None
    except OSError as exc:
        raise click.ClickException(f"cannot read this node's devices: {exc}") from exc


def _not_readable(state_dir: Path) -> list[str]:
    """The problem of an unreadable state directory, the source of devices in NodeDeviceConfigs."""
    file = state_dir / FILE_NAME
    if not os.path.isdir(state_dir):
        return [f"{state_dir} does not exist: no agent has run here, or it has another --state-dir"]
    if os.access(state_dir, os.X_OK) and (os.access(file, os.R_OK) or not os.path.lexists(file)):
        return []
    marked = "devices that NodeDeviceConfigs already offer are not marked"
    return [f"{file} cannot be read, so {marked}: run this as the user the agent runs as"]
