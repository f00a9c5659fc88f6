"""The program nodedevice-operator: reads the settings, runs the operator, and reports an error in one line."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import click
from nodedevice_common import logs
from nodedevice_common.safe_output import guard_output

from nodedevice_operator import __version__, buffers, settings
from nodedevice_operator.cli.check import check
from nodedevice_operator.cli.cleanup import cleanup
from nodedevice_operator.cli.crds import crds
from nodedevice_operator.cli.extender import extender
from nodedevice_operator.cli.program_options import SETTINGS, exit_status, takes_settings
from nodedevice_operator.operator import Operator

_HELP: Final = {
    "http_address": "HOST:PORT of /healthz, /readyz, /metrics; without HOST all addresses; port 0: any free one.",
    "tls_certificate": "PEM file of a certificate chain: HTTPS with it instead of HTTP.",
    "leases_namespace": "Namespace in which the agents keep their Leases.",
    "agent_poll_seconds": "How often the agents' Leases are listed.",
    "agent_grace_seconds": "Silence of an agent, after its Lease, that takes its free devices.",
    "leader_elect": "Write only while holding a Lease (the default), or always.",
    "observe_dra": "Count the devices of DRA drivers that are not of one node (the default), or not.",
    "node_taint": "Taint Nodes with unhealthy devices; default: not.",
    "node_labels": "Sum up resources in labels of Nodes; default: not.",
    "held_device_policy": "report or evict, when a device breaks that a pod holds; RESOURCE * is every other one. May be given "
    "several times.",
    "eviction_delay_seconds": "How long it has been unhealthy before its pod is evicted.",
    "evictions_per_minute": "How many pods at most are evicted in the whole cluster.",
    "required_plugins": "Keep the policy that makes pods wait for their node's agent (the default), or leave that to the runtime.",
    "required_plugin_names": "Resource names that it may hold, such as vendor.com/*; others are not advertised. May be given "
    "several times.",
    "mark_waiting_pods": "Have that policy mark pods too that wait for a resource before it is advertised (the default), or not.",
}
_METAVARS: Final = {"held_device_policy": "RESOURCE=POLICY", "required_plugin_names": "PATTERN"}


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


@main.command(context_settings=SETTINGS)
@takes_settings(settings.OperatorSettings, _HELP, _METAVARS)
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
