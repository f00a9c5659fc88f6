"""The program nodedevice-operator: settings read, the operator run, and errors said in one line."""

import asyncio
import atexit
import os
import sys
from pathlib import Path
from typing import Any, get_args

import click

from nodedevice_operator import __version__, settings
from nodedevice_operator.edges import log
from nodedevice_operator.errors import CredentialsError, SettingsError
from nodedevice_operator.operator import Operator

_USAGE_ERROR = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nodedevice-operator")
def main() -> None:
    """Turn NodeDevices into schedulable Node capacity and a PodDevice per pod."""


@main.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option(
    "--config",
    "config_file",
    envvar="NODEDEVICE_CONFIG",
    type=click.Path(path_type=Path),
    help="YAML file with the same settings in camelCase; flags and environment win over it.",
)
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--http-address", help="host:port of /healthz, /readyz and /metrics; port 0 takes a free one.")
@click.option("--leases-namespace", help="Namespace in which the agents keep their Leases.")
@click.option("--log-level", type=click.Choice(get_args(settings.LogLevel)), help="Least level that is logged.")
@click.option("--log-format", type=click.Choice(get_args(settings.LogFormat)), help="For people or for machines.")
def run(config_file: Path | None, **flags: Any) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Each option can be given as an environment variable too: --log-level as NODEDEVICE_LOG_LEVEL.
    """
    try:
        chosen = settings.load(config_file, flags)
        log.set_up(chosen.log_level, chosen.log_format)
        is_busy = asyncio.run(_run(chosen))
    except (SettingsError, CredentialsError) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_USAGE_ERROR)
    if is_busy:
        # a thread that still waits for an answer would be joined at exit, for as long as its time-out; all else that is to be done
        # at exit is done, among it the removal of the certificates that the kubernetes package has put into temporary files
        atexit._run_exitfuncs()
        os._exit(0)


async def _run(chosen: settings.Settings) -> bool:
    operator = Operator(chosen)
    await operator.run()
    return operator.is_busy


if __name__ == "__main__":
    main()
