"""The program nodedevice-operator: reads the settings, runs the operator, and reports an error in one line."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, get_args

import click
from nodedevice_common import logs
from nodedevice_common.http_server import Authentication
from nodedevice_common.safe_output import guard_output

from nodedevice_operator import __version__, buffers, settings
from nodedevice_operator.cli.check import check
from nodedevice_operator.cli.cleanup import cleanup
from nodedevice_operator.cli.crds import crds
from nodedevice_operator.cli.extender import extender
from nodedevice_operator.errors import CredentialsError, OperatorSettingsError, StaleWatch, TaskEnded
from nodedevice_operator.operator import Operator

_USAGE_ERROR = 2
_RESTART = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nodedevice-operator")
def main() -> None:
    """Turn NodeDevices into schedulable Node capacity and a PodDevice per pod."""
    guard_output()
    buffers.keep_small()


main.add_command(crds)
main.add_command(cleanup)
main.add_command(check)
main.add_command(extender)


@main.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option(
    "--config",
    "config_file",
    envvar="NODEDEVICE_CONFIG",
    type=click.Path(path_type=Path),
    help="YAML file with the same settings in camelCase; flags and environment win over it.",
)
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option(
    "--http-address", help="HOST:PORT of /healthz, /readyz, /metrics; without HOST all addresses; port 0: any free one."
)
@click.option(
    "--metrics-authentication",
    type=click.Choice(get_args(Authentication)),
    help="Who may read /metrics: everybody, or bearers of a token with permission to get that path.",
)
@click.option("--tls-certificate", help="PEM file of a certificate chain: HTTPS with it instead of HTTP.")
@click.option("--tls-key", help="PEM file of its key.")
@click.option("--leases-namespace", help="Namespace in which the agents keep their Leases.")
@click.option("--agent-poll-seconds", type=float, help="How often the agents' Leases are listed.")
@click.option(
    "--agent-grace-seconds", type=float, help="Silence of an agent, after its Lease, that takes its free devices."
)
@click.option(
    "--leader-elect/--no-leader-elect", default=None, help="Write only while holding a Lease (the default), or always."
)
@click.option("--namespace", help="Namespace of that Lease; without it the pod's own, or the kubeconfig's.")
@click.option("--instance", help="Helm release whose label created objects get; default: none.")
@click.option(
    "--leader-lease-seconds", type=int, help="How long that Lease lasts, and so about the take-over after a crash."
)
@click.option("--watchdog-seconds", type=float, help="How often the watch is checked against a list; 0: never.")
@click.option(
    "--observe-dra/--no-observe-dra",
    default=None,
    help="Count the devices of DRA drivers that are not of one node (the default), or not.",
)
@click.option("--node-taint/--no-node-taint", default=None, help="Taint Nodes with unhealthy devices; default: not.")
@click.option("--node-labels/--no-node-labels", default=None, help="Sum up resources in labels of Nodes; default: not.")
@click.option(
    "--held-device-policy",
    multiple=True,
    callback=lambda _context, _option, given: _policies(given),
    metavar="RESOURCE=POLICY",
    help="report or evict, when a device breaks that a pod holds; RESOURCE * is every other one. May be given several times.",
)
@click.option("--eviction-delay-seconds", type=float, help="How long it has been unhealthy before its pod is evicted.")
@click.option("--evictions-per-minute", type=float, help="How many pods at most are evicted in the whole cluster.")
@click.option(
    "--required-plugins/--no-required-plugins",
    default=None,
    help="Keep the policy that makes pods wait for their node's agent (the default), or leave that to the runtime.",
)
@click.option(
    "--required-plugin-names",
    multiple=True,
    callback=lambda _context, _option, given: list(given) or None,
    metavar="PATTERN",
    help="Resource names that it may hold, such as vendor.com/*; others are not advertised. May be given several times.",
)
@click.option(
    "--mark-waiting-pods/--no-mark-waiting-pods",
    default=None,
    help="Have that policy mark pods too that wait for a resource before it is advertised (the default), or not.",
)
@click.option("--log-level", type=click.Choice(get_args(logs.LogLevel)), help="Least level that is logged.")
@click.option("--log-format", type=click.Choice(get_args(logs.LogFormat)), help="For people or for machines.")
def run(config_file: Path | None, **flags: Any) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Each option can be given as an environment variable too: --log-level as NODEDEVICE_LOG_LEVEL.
    """
    try:
        chosen = settings.load(config_file, flags)
        _set_up_log(chosen)
        asyncio.run(_run(chosen))
    except (OperatorSettingsError, CredentialsError) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_USAGE_ERROR)
    except (StaleWatch, TaskEnded) as error:
        click.echo(f"nodedevice-operator: {error}", err=True)
        sys.exit(_RESTART)


def _set_up_log(chosen: settings.OperatorSettings) -> None:
    # these log each attempt of each request; what matters of it is logged once, by kube.health
    requests = logging.WARNING if chosen.log_level == "debug" else logging.CRITICAL
    libraries = {"kopf": requests, "asyncio": logging.WARNING}
    logs.set_up_logs(chosen.log_level, chosen.log_format, libraries)


def _policies(given: tuple[str, ...]) -> dict[str, str] | None:
    """RESOURCE=POLICY pairs as a mapping; None without any. Raises click.BadParameter."""
    for pair in given:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} is not RESOURCE=POLICY, such as vendor.com/gpu=evict")
    return dict(pair.split("=", 1) for pair in given) or None


async def _run(chosen: settings.OperatorSettings) -> None:
    await Operator(chosen).run()


if __name__ == "__main__":
    main()
