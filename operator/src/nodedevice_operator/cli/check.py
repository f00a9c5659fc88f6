"""`nodedevice-operator check`: whether an installation works, as a table; `helm test` runs it. Reads only.

People have `kubectl nodedevice check`, which needs no account of the operator's.
"""

import asyncio
import datetime
import sys
from typing import Final

import click
from nodedevice_api import names

from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.api import WorkloadsApi
from nodedevice_operator.cli.check_report import (
    CheckResult,
    is_renewed,
    of_agents,
    of_delivery,
    of_node_devices,
    of_pods,
    of_shared_slices,
    table,
)
from nodedevice_operator.cli.crds import NAMES, CrdApi
from nodedevice_operator.errors import Forbidden, NotFound
from nodedevice_operator.informers.memory_bounds import without_lists
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.lists import NODE_DEVICES, Cluster
from nodedevice_operator.leases.agent_monitor import AgentsApi
from nodedevice_operator.leases.elector import LeaderLeases
from nodedevice_operator.objects.unwatched import LeaseRecord
from nodedevice_operator.shared_slices import SHARED_SLICES

_WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0
# What the API server itself may take, on top of the time that the parts have to become ready.
_SERVER_SECONDS: Final = 30.0
# So many of the parts that are waited for are named.
_NAMED: Final = 5


@click.command(cls=command.OneCommand, context_settings=command.SETTINGS)
@command.kubeconfig_option
@command.namespace_option
@command.leases_namespace_option
@click.option(
    "--daemon-set",
    "daemon_sets",
    multiple=True,
    default=["nodedevice-agent"],
    help="DaemonSet of the agents, where there is one; once for each pool.",
)
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0, 3600),
    default=_WAIT_SECONDS,
    help="How long to wait for everything to become ready; 0 checks once.",
)
def check(
    kubeconfig: str | None,
    namespace: str | None,
    leases_namespace: str,
    daemon_sets: tuple[str, ...],
    wait_seconds: float,
) -> None:
    """Print whether CRDs, operator, agents and NodeDevices are ready; exit with status 1 if one is not.

    Of helm test: for people there is kubectl nodedevice check.
    """
    if sys.stderr.isatty():
        _echo("for people there is kubectl nodedevice check (docs/kubectl.md)")
    login = credentials.load(kubeconfig)
    where = namespace or login.namespace or names.SYSTEM_NAMESPACE
    results = asyncio.run(_run(login, where, leases_namespace, daemon_sets, wait_seconds))
    for line in table(results):
        click.echo(line)
    sys.exit(0 if all(result.is_good for result in results) else 1)


async def _run(
    login: credentials.Credentials,
    namespace: str,
    leases_namespace: str,
    daemon_sets: tuple[str, ...],
    wait_seconds: float,
) -> list[CheckResult]:
    limit = wait_seconds + _SERVER_SECONDS
    waits_for_server = f"waiting up to {limit:g} s for the API server {login.server}"
    async with (
        command.connected(login) as client,
        command.within(limit, lambda trouble: _echo(f"{waits_for_server}: {trouble}")) as progress,
    ):
        checks = _Checks(client, namespace, leases_namespace, daemon_sets)
        progress.step = "reading the objects"
        give_up_at = asyncio.get_running_loop().time() + wait_seconds
        is_reported = False
        while True:
            results = await progress.retrying(checks.all)
            left = give_up_at - asyncio.get_running_loop().time()
            bad = [result for result in results if not result.is_good]
            if left <= 0 or not bad:
                return results
            if not is_reported:
                _echo(f"waiting up to {left:.0f} s for {_few(bad)}")
                is_reported = True
            await asyncio.sleep(_POLL_SECONDS)


def _echo(line: str) -> None:
    """For people only: programs read the table."""
    click.echo(line, err=True)


def _few(bad: list[CheckResult]) -> str:
    named = [f"{result.what} {result.name}".rstrip() for result in bad[:_NAMED]]
    more = [f"{len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
    return ", ".join(named + more)


class _Checks:
    """All checks; remembers the Leases as they were first seen."""

    def __init__(self, client: Client, namespace: str, leases_namespace: str, daemon_sets: tuple[str, ...]) -> None:
        self._crds = CrdApi(client)
        self._cluster = Cluster(client)
        self._agents_api = AgentsApi(client, leases_namespace)
        self._leader = LeaderLeases(client, namespace)
        self._workloads = WorkloadsApi(client, namespace)
        self._daemon_sets = daemon_sets
        self._first_leader: LeaseRecord | None = None
        self._first_agents: dict[str, LeaseRecord] = {}

    async def all(self) -> list[CheckResult]:
        """Raises ApiError."""
        kinds = [await self._kind(name) for name in NAMES]
        programs = [await self._operator(), *await self._agents()]
        found = [*kinds, *programs]
        if not all(result.is_good for result in programs):
            found += await self._pods()
        if all(result.is_good for result in kinds):
            pages = self._cluster.pages(NODE_DEVICES)
            records = [without_lists(record) async for page in pages for record in page.records]
            found += [*of_node_devices(records), *of_delivery(records)]
        return found + await self._shared_slices()

    async def _shared_slices(self) -> list[CheckResult]:
        try:
            pages = self._cluster.pages(SHARED_SLICES)
            return of_shared_slices([record async for page in pages for record in page.records])
        except (Forbidden, NotFound):
            # an API server without the kind, or an account without the right: it decides nothing
            return []

    async def _pods(self) -> list[CheckResult]:
        try:
            waiting = await self._workloads.waiting_pods()
        except Forbidden:
            # it explains, and decides nothing
            return []
        return of_pods((pod.metadata.name, pod.spec.node_name, pod.waits_for) for pod in waiting)

    async def _kind(self, name: str) -> CheckResult:
        found = await self._crds.read(name)
        if found is None:
            details = (
                "is missing: install it with helm upgrade, or as an administrator with nodedevice-operator crds apply"
            )
            return CheckResult("kind", name, False, details)
        if not found.is_established:
            return CheckResult("kind", name, False, f"is not served: {found.rejected_names or 'not established yet'}")
        return CheckResult("kind", name, True, f"is served, of release {found.release or 'unknown'}")

    async def _operator(self) -> CheckResult:
        lease = await self._leader.read()
        if not lease.holder:
            return CheckResult("operator", "", False, "none leads; check the operators' pods and logs")
        now = LeaseRecord(lease.renewed, lease.duration_seconds)
        self._first_leader = self._first_leader or now
        if not is_renewed(now, self._first_leader, datetime.datetime.now(datetime.UTC)):
            return CheckResult("operator", lease.holder, False, f"renewed its Lease at {lease.renewed}, and not since")
        return CheckResult("operator", lease.holder, True, "leads")

    async def _agents(self) -> list[CheckResult]:
        try:
            leases = await self._agents_api.list_leases()
        except NotFound:
            leases = {}
        self._first_agents = leases | self._first_agents
        found = [await self._workloads.desired_agents(name) for name in self._daemon_sets]
        counts = [count for count in found if count is not None]
        desired = sum(counts) if counts else None
        return of_agents(leases, self._first_agents, datetime.datetime.now(datetime.UTC), desired)
