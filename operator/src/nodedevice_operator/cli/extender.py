"""The command `extender`: serves kube-scheduler until a signal, so that it finds a GPU with enough free parts."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import click
from nodedevice_common import logs

from nodedevice_operator.cli.program_options import SETTINGS, exit_status, takes_settings
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.settings import ExtenderSettings, load

_HELP: Final = {
    "address": "HOST:PORT of filter, prioritize, bind and preempt; default: 127.0.0.1:8888.",
    "http_address": "HOST:PORT of /healthz, /readyz, /metrics; default: port 8081 of all addresses.",
    "policy": "Prefer the fullest GPU (the default), or the emptiest.",
    "tls_certificate": "PEM file of the certificate chain of --address: mutual TLS instead of HTTP.",
    "client_ca": "PEM file of the authority that has signed kube-scheduler's certificate.",
    "client_names": "Common or alternative name of an allowed client; default: any client of that authority. Can be repeated.",
    "metrics_tls_certificate": "PEM file of a certificate chain: HTTPS at --http-address.",
    "metrics_tls_key": "PEM file of its key.",
    "leader_elect": "Serve only while holding a Lease (the default), or always.",
    "follow_lease": "Lease of kube-scheduler's own election: lead only while the kube-scheduler of this pod holds it.",
}
_METAVARS: Final = {"client_names": "NAME", "follow_lease": "NAMESPACE/NAME"}


@click.command(context_settings=SETTINGS)
@takes_settings(ExtenderSettings, _HELP, _METAVARS)
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
