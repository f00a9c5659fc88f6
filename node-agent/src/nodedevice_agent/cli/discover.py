"""`nodedevice-agent discover`: which devices this node could offer, and the settings that offer them.

It needs neither an API server nor an agent that runs. In an agent's pod it reads what the chart mounts: the host's /sys and /dev,
read-only. Outside of pods it is run on the node.
"""

import asyncio
import logging
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import click

from nodedevice_agent.cli.options import OneLineCommand, takes_settings
from nodedevice_agent.configs.watch import FILE_NAME, last_known
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.discovery import report
from nodedevice_agent.plugins.discovery.candidates import NVIDIA, Facts, candidates
from nodedevice_agent.plugins.discovery.survey import Hardware, Offered, hardware, nvidia_gpus, offered
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.parts import uses_of
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import AgentSettings

_node_settings = takes_settings("state_dir")
# the kernel keeps a reader of sysfs waiting for as long as a device hangs
_MOST_SECONDS: Final = 30.0


@click.command(cls=OneLineCommand)
@_node_settings
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="text is for people.")
def discover(settings: AgentSettings, output: str) -> None:
    """List the devices of this node that can be offered, with the lines of settings that offer each."""
    # what the agent logs of its settings is in the list: without a handler Python would print it
    logging.getLogger("nodedevice_agent").addHandler(logging.NullHandler())
    state_dir = Path(settings.state_dir)
    plugins = last_known(settings.plugins, settings.allowed_host_paths, state_dir)
    found, already, (gpus, why_no_gpus) = asyncio.run(_read(plugins))
    facts = Facts(
        found.functions,
        found.files,
        found.labels,
        found.pci_devices,
        gpus,
        found.serials.is_own,
        found.usb_drivers,
        found.consoles,
        already.by_file | _offered_gpus(plugins, gpus),
    )
    notes = [*found.notes, *_not_readable(state_dir)]
    if why_no_gpus and (plugins.nvml is not None or any(pci.vendor == NVIDIA for pci in found.pci_devices)):
        notes.append(why_no_gpus)
    every = candidates(facts)
    if output == "json":
        click.echo(report.as_json(every, already.missing, notes))
    else:
        click.echo("\n".join(report.as_text(every, already.missing, notes)))


async def _read(plugins: PluginSettings) -> tuple[Hardware, Offered, tuple[tuple[Gpu, ...], str]]:
    """Raises click.ClickException."""
    root, reads = plugins.host_root.rstrip("/"), FileReads()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            found = await reads.run(partial(hardware, root))
            already = await reads.run(partial(offered, plugins, root))
            return found, already, await nvidia_gpus(plugins)
    except TimeoutError:
        problem = f"no answer within {_MOST_SECONDS:g} s: a device hangs; the kernel log (dmesg) names it"
        raise click.ClickException(problem) from None
    except OSError as exc:
        raise click.ClickException(f"cannot read this node's devices: {exc}") from exc


def _offered_gpus(plugins: PluginSettings, gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """By UUID, what the settings make of each that the driver reports, where the plugin is on."""
    nvml = plugins.nvml
    if nvml is None:
        return {}
    return {gpu.uuid: tuple(use.resource_name for use in uses_of(gpu, nvml)) for gpu in gpus}


def _not_readable(state_dir: Path) -> list[str]:
    """What is offered by NodeDeviceConfigs is known from there."""
    file = state_dir / FILE_NAME
    if not os.path.isdir(state_dir):
        return [f"{state_dir} is not there: no agent has run here, or it has another --state-dir"]
    if os.access(state_dir, os.X_OK) and (os.access(file, os.R_OK) or not os.path.lexists(file)):
        return []
    marked = "what NodeDeviceConfigs offer already is not marked"
    return [f"{file} cannot be read, so {marked}: run this as the user the agent runs as"]
