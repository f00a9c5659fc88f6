"""The command `extender`: serves kube-scheduler until a signal, so that it finds a GPU with enough free parts."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, get_args

import click
from nodedevice_common import logs
from nodedevice_common.http_server import Authentication

from nodedevice_operator.errors import CredentialsError, OperatorSettingsError, StaleWatch, TaskEnded
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.settings import ExtenderSettings, Policy, load

_USAGE_ERROR = 2
_RESTART = 1


@click.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option(
    "--config",
    "config_file",
    envvar="NODEDEVICE_CONFIG",
    type=click.Path(path_type=Path),
    help="YAML file with the same settings in camelCase; flags and environment win over it.",
)
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--address", help="HOST:PORT of filter, prioritize, bind and preempt; default: 127.0.0.1:8888.")
@click.option("--http-address", help="HOST:PORT of /healthz, /readyz, /metrics; default: port 8081 of all addresses.")
@click.option(
    "--policy", type=click.Choice(get_args(Policy)), help="Prefer the fullest GPU (the default), or the emptiest."
)
@click.option("--tls-certificate", help="PEM file of the certificate chain of --address: mutual TLS instead of HTTP.")
@click.option("--tls-key", help="PEM file of its key.")
@click.option("--client-ca", help="PEM file of the authority that has signed kube-scheduler's certificate.")
@click.option(
    "--client-names",
    multiple=True,
    callback=lambda _context, _option, given: list(given) or None,
    metavar="NAME",
    help="Common or alternative name of an allowed client; default: any client of that authority. Can be repeated.",
)
@click.option(
    "--metrics-authentication",
    type=click.Choice(get_args(Authentication)),
    help="Who may read /metrics: everybody, or bearers of a token with permission to get that path.",
)
@click.option("--metrics-tls-certificate", help="PEM file of a certificate chain: HTTPS at --http-address.")
@click.option("--metrics-tls-key", help="PEM file of its key.")
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Serve only while holding a Lease (the default), or always."
)
@click.option("--namespace", help="Namespace of that Lease; without it the pod's own, or the kubeconfig's.")
@click.option("--instance", help="Helm release whose label created objects get; default: none.")
@click.option(
    "--leader-lease-seconds", type=int, help="How long that Lease lasts, and so about the take-over after a crash."
)
@click.option(
    "--follow-lease",
    metavar="NAMESPACE/NAME",
    help="Lease of kube-scheduler's own election: lead only while the kube-scheduler of this pod holds it.",
)
@click.option("--watchdog-seconds", type=float, help="How often the watch is checked against a list; 0: never.")
@click.option("--log-level", type=click.Choice(get_args(logs.LogLevel)), help="Least level that is logged.")
@click.option("--log-format", type=click.Choice(get_args(logs.LogFormat)), help="For people or for machines.")
def extender(config_file: Path | None, **flags: Any) -> None:
    """Serve kube-scheduler until SIGTERM or SIGINT: which nodes and GPUs have room for the parts of a pod.

    Each option can be given as an environment variable too: --log-level as NODEDEVICE_LOG_LEVEL.
    """
    try:
        chosen = load(config_file, flags)
        logs.set_up_logs(chosen.log_level, chosen.log_format, {"asyncio": logging.WARNING, "aiohttp": logging.CRITICAL})
        asyncio.run(_run(chosen))
    except (OperatorSettingsError, CredentialsError) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_USAGE_ERROR)
    except (StaleWatch, TaskEnded) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_RESTART)


async def _run(chosen: ExtenderSettings) -> None:
    await Extender(chosen).run()
