"""The command `extender`: serves kube-scheduler until a signal, so that it finds a GPU with enough free parts."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import click
from nodedevice_common import logs

from nodedevice_operator.cli.program_options import SETTINGS, exit_status, takes_settings
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.settings import ExtenderSettings, load


@click.command(context_settings=SETTINGS)
@takes_settings(ExtenderSettings, client_names="NAME", follow_lease="NAMESPACE/NAME")
def extender(config_file: Path | None, **flags: Any) -> None:
    """Serve kube-scheduler until SIGTERM or SIGINT: which nodes and GPUs have room for the parts of a pod.

    Each option can be given as an environment variable too: --log-level as NODEDEVICE_LOG_LEVEL.
    """
    with exit_status():
        chosen = load(config_file, flags)
        logs.set_up_logs(chosen.log_level, chosen.log_format, {"asyncio": logging.WARNING, "aiohttp": logging.CRITICAL})
        asyncio.run(_run(chosen))


async def _run(chosen: ExtenderSettings) -> None:
    await Extender(chosen).run()
