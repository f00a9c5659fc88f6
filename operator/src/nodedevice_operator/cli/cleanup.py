"""`nodedevice-operator cleanup`: what agents and operators have written, taken back. What the chart runs before an uninstall."""

import asyncio
from typing import Final

import click
from nodedevice_api import names

from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.cleanup_steps import Cleanup, Scope
from nodedevice_operator.errors import OperatorError
from nodedevice_operator.kube import credentials

_SECONDS: Final = 180.0


@click.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--namespace", help="Namespace of the operator; without it the pod's own, or the kubeconfig's.")
@click.option("--leases-namespace", default=names.AGENTS_NAMESPACE, help="Namespace of the agents' Leases.")
@click.option("--deployment", default="nodedevice-operator", help="Deployment of the operator, deleted first.")
@click.option("--daemon-set", default="nodedevice-agent", help="DaemonSet of the agents, deleted first.")
@click.option(
    "--delete-crds",
    is_flag=True,
    help="Delete the kinds too, and with them every cordon. Without it a NodeDevice that has one is kept.",
)
@click.option(
    "--delete-leases-namespace",
    is_flag=True,
    help="Delete the namespace of the agents' Leases too, with all that is in it, and wait until it is gone.",
)
@click.option(
    "--timeout-seconds", type=click.FloatRange(1, 3600), default=_SECONDS, help="How long all of it may take."
)
def cleanup(
    kubeconfig: str | None,
    namespace: str | None,
    leases_namespace: str,
    deployment: str,
    daemon_set: str,
    delete_crds: bool,
    delete_leases_namespace: bool,
    timeout_seconds: float,
) -> None:
    """Take back all that agents and operators have written, and tell what that was.

    The workloads are ended and the operators' Lease is held meanwhile, so nobody writes it again; an agent that runs as a process
    of its host has to be stopped by you. Pods go on running, with the devices they have.
    """
    try:
        login = credentials.load(kubeconfig)
        scope = Scope(
            namespace=namespace or login.namespace or names.SYSTEM_NAMESPACE,
            leases_namespace=leases_namespace,
            deployment=deployment,
            daemon_set=daemon_set,
            delete_definitions=delete_crds,
            delete_leases_namespace=delete_leases_namespace,
        )
        if delete_leases_namespace and scope.leases_namespace == scope.namespace:
            raise click.UsageError(
                f"--delete-leases-namespace: {scope.namespace} is the operator's own; helm uninstall keeps it"
            )
        asyncio.run(_run(login, scope, timeout_seconds))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
    except ExceptionGroup as group:
        # several objects at a time: the first that failed says why, the others fail alike
        raise click.ClickException(str(group.exceptions[0])) from group


async def _run(login: credentials.Credentials, scope: Scope, seconds: float) -> None:
    async with command.within(seconds) as progress:
        await Cleanup(login, scope, progress, click.echo).run()
    click.echo("nothing of nodedevice is left but what is told above")
