"""The program nodedevice-operator: reads the settings, runs the operator, and reports an error in one line."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import click
from nodedevice_common import logs
from nodedevice_common.safe_output import guard_output

from nodedevice_operator import __version__, buffers, settings
from nodedevice_operator.cli.cleanup import cleanup
from nodedevice_operator.cli.crds import crds
from nodedevice_operator.cli.extender import extender
from nodedevice_operator.cli.program_options import SETTINGS, exit_status, takes_settings
from nodedevice_operator.operator import Operator


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nodedevice-operator")
def main() -> None:
    """Turn NodeDevices into schedulable Node capacity and a PodDevice per pod."""
    guard_output()
    buffers.keep_small()


main.add_command(crds)
main.add_command(cleanup)
main.add_command(extender)


@main.command(context_settings=SETTINGS)
@takes_settings(settings.OperatorSettings, held_device_policy="RESOURCE=POLICY", required_plugin_names="PATTERN")
def run(config_file: Path | None, **flags: Any) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Each option can be given as an environment variable too: --log-level as NODEDEVICE_LOG_LEVEL.
    """
    with exit_status():
        chosen = settings.load(config_file, flags)
        _set_up_log(chosen)
        asyncio.run(_run(chosen))


def _set_up_log(chosen: settings.OperatorSettings) -> None:
    # these log each attempt of each request; what matters of it is logged once, by kube.health
    requests = logging.WARNING if chosen.log_level == "debug" else logging.CRITICAL
    libraries = {"kopf": requests, "asyncio": logging.WARNING}
    logs.set_up_logs(chosen.log_level, chosen.log_format, libraries)


async def _run(chosen: settings.OperatorSettings) -> None:
    await Operator(chosen).run()


if __name__ == "__main__":
    main()
