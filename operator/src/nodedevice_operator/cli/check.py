"""`nodedevice-operator check`: whether an installation works, as a table; what `helm test` runs. Reads only."""

import asyncio
import datetime
import sys
from typing import Final

import click
from nodedevice_api import names

from nodedevice_operator.agents.api import AgentsApi
from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.check_report import Verdict, is_renewed, of_agents, of_node_devices, table
from nodedevice_operator.cli.crd_objects import NAMES, Definitions
from nodedevice_operator.cli.workloads import Workloads
from nodedevice_operator.errors import NotFound, OperatorError
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.api import Cluster
from nodedevice_operator.kube.client import Client
from nodedevice_operator.leader.lease import LeaderLeases
from nodedevice_operator.objects.lease import LeaseRecord

_WAIT_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 1.0
# What the API server itself may take on top of the time that is waited for things to become right.
_PATIENCE_SECONDS: Final = 30.0
# Of what is waited for, so many are named.
_NAMED: Final = 5


@click.command(context_settings={"auto_envvar_prefix": "NODEDEVICE", "show_default": True})
@click.option("--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config.")
@click.option("--namespace", help="Namespace of the operator; without it the pod's own, or the kubeconfig's.")
@click.option("--leases-namespace", default=names.AGENTS_NAMESPACE, help="Namespace of the agents' Leases.")
@click.option("--daemon-set", default="nodedevice-agent", help="DaemonSet of the agents, where there is one.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0, 3600),
    default=_WAIT_SECONDS,
    help="How long things may take to become right; 0 looks once.",
)
def check(
    kubeconfig: str | None, namespace: str | None, leases_namespace: str, daemon_set: str, wait_seconds: float
) -> None:
    """Print whether kinds, operator, agents and NodeDevices are as they should be; exit status 1 where one is not."""
    try:
        login = credentials.load(kubeconfig)
        where = namespace or login.namespace or names.SYSTEM_NAMESPACE
        verdicts = asyncio.run(_check(login, where, leases_namespace, daemon_set, wait_seconds))
    except OperatorError as error:
        raise click.ClickException(str(error)) from error
    for line in table(verdicts):
        click.echo(line)
    sys.exit(0 if all(verdict.is_good for verdict in verdicts) else 1)


async def _check(
    login: credentials.Credentials, namespace: str, leases_namespace: str, daemon_set: str, wait_seconds: float
) -> list[Verdict]:
    client = command.client(login)
    try:
        look = _Look(client, namespace, leases_namespace, daemon_set)
        patience = wait_seconds + _PATIENCE_SECONDS
        waits_for_server = f"waiting up to {patience:g} s for the API server {login.server}"
        async with command.within(patience, lambda trouble: _tell(f"{waits_for_server}: {trouble}")) as progress:
            progress.step = "reading what is there"
            give_up_at = asyncio.get_running_loop().time() + wait_seconds
            is_told = False
            while True:
                verdicts = await progress.patiently(look.all)
                left = give_up_at - asyncio.get_running_loop().time()
                bad = [verdict for verdict in verdicts if not verdict.is_good]
                if left <= 0 or not bad:
                    return verdicts
                if not is_told:
                    _tell(f"waiting up to {left:.0f} s for {_few(bad)}")
                    is_told = True
                await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        await client.close()


def _tell(line: str) -> None:
    """To people only: the table is what programs read."""
    click.echo(line, err=True)


def _few(bad: list[Verdict]) -> str:
    named = [f"{verdict.what} {verdict.name}".rstrip() for verdict in bad[:_NAMED]]
    more = [f"{len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
    return ", ".join(named + more)


class _Look:
    """Looks at everything, again and again, and remembers how the Leases looked at first."""

    def __init__(self, client: Client, namespace: str, leases_namespace: str, daemon_set: str) -> None:
        self._definitions = Definitions(client)
        self._cluster = Cluster(client)
        self._agents_api = AgentsApi(client, leases_namespace)
        self._leader = LeaderLeases(client, namespace)
        self._workloads = Workloads(client, namespace)
        self._daemon_set = daemon_set
        self._first_leader: LeaseRecord | None = None
        self._first_agents: dict[str, LeaseRecord] = {}

    async def all(self) -> list[Verdict]:
        """Raises ApiError."""
        kinds = [await self._kind(name) for name in NAMES]
        found = [*kinds, await self._operator(), *await self._agents()]
        if all(verdict.is_good for verdict in kinds):
            found += of_node_devices((await self._cluster.list_node_devices()).records)
        return found

    async def _kind(self, name: str) -> Verdict:
        found = await self._definitions.read(name)
        if found is None:
            says = "is missing: nodedevice-operator crds apply, or helm upgrade, puts it there"
            return Verdict("kind", name, False, says)
        if not found.is_established:
            return Verdict("kind", name, False, f"is not served: {found.refused_names or 'not established yet'}")
        return Verdict("kind", name, True, f"is served, of release {found.release or 'unknown'}")

    async def _operator(self) -> Verdict:
        lease = await self._leader.read()
        if not lease.holder:
            return Verdict("operator", "", False, "none leads; look at the operators' pods and their logs")
        now = LeaseRecord(lease.renewed, lease.duration_seconds)
        self._first_leader = self._first_leader or now
        if not is_renewed(now, self._first_leader, _now()):
            return Verdict("operator", lease.holder, False, f"renewed its Lease at {lease.renewed}, and not since")
        return Verdict("operator", lease.holder, True, "leads")

    async def _agents(self) -> list[Verdict]:
        try:
            leases = await self._agents_api.list_leases()
        except NotFound:
            leases = {}
        self._first_agents = leases | self._first_agents
        found = await self._workloads.daemon_set(self._daemon_set)
        return of_agents(leases, self._first_agents, _now(), found.status.desired_number_scheduled if found else None)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
