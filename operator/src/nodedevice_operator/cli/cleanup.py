"""`nodedevice-operator cleanup`: removes everything that agents and operators have written. The chart runs it before an uninstall.

It prints its plan and the cluster first, and asks on a terminal. It deletes the chart's workloads, then holds the operators' leader
Lease, so that an operator elsewhere waits; every write passes the same fence as an operator's. Each step reads the current state,
so a second run continues an interrupted one. It removes only the operator's own fields of a Node.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Conflict, Forbidden, NotFound
from nodedevice_kube.leases import Lease

from nodedevice_operator.capacity.reconciler import CapacityApi
from nodedevice_operator.cli import command_base as command
from nodedevice_operator.cli.api import CRD, LEASE, NAMESPACE, SCHEDULERS, LeftoversApi
from nodedevice_operator.cli.cleanup_plan import (
    CleanupScope,
    Survey,
    Withdrawal,
    plan,
    staying,
    withdrawal,
    withdrawals,
)
from nodedevice_operator.cli.cleanup_survey import is_kept, survey, workloads_of
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.errors import Overdue, StillLed
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.lists import NODES, POD_DEVICES, Cluster
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import Election, LeaderLeases, identity
from nodedevice_operator.leases.leader_election import LONGEST_LEASE_SECONDS, Timing
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.reconcile.poddevice_reconciler import PodDevicesApi
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelsApi
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi

if TYPE_CHECKING:
    from nodedevice_operator.cli.objects import Objects

_SECONDS: Final = 180.0
# Renewed every few seconds, and not lost to a slow response; no other process competes for it.
_TIMING: Final = Timing(20)
# Slightly longer than any other operator's Lease may last.
_LEAD_SECONDS: Final = LONGEST_LEASE_SECONDS + 5.0
# Twice an agent's termination grace. A pod of an unreachable node goes only when the node is back, or is deleted.
_PODS_SECONDS: Final = 40.0
_SETTLE_SECONDS: Final = 1.0
# An empty namespace goes within seconds. An API service that the API server cannot reach may delay one for days.
_NAMESPACE_SECONDS: Final = 20.0
# A Node changes with every heartbeat, and an apply carries the version that was read.
_ATTEMPTS: Final = 20


class _Leases(LeaderLeases):
    """Remembers why the Lease was not written, which an election tries again in silence."""

    failure: ApiError | None = None

    async def write(self, *lease: Any, **more: Any) -> Lease:
        try:
            return await super().write(*lease, **more)
        except ApiError as error:
            self.failure = error
            raise


@dataclass(eq=False)
class Cleanup:
    """free: for the requests that open the fence and that delete the workloads. fenced: for all others."""

    free: Client
    fenced: Client
    free_objects: "Objects"
    fenced_objects: "Objects"
    fence: WriteFence
    scope: CleanupScope
    progress: command.Progress

    def __post_init__(self) -> None:
        self._cluster = Cluster(self.fenced)
        self._capacity = CapacityApi(self.fenced)
        self._node_labels = NodeLabelsApi(self.fenced)
        self._leftovers = LeftoversApi(self.fenced)
        self._leases = _Leases(self.free, self.scope.namespace)

    async def run(self) -> None:
        """Raises OperatorError; completed steps stay done."""
        await self._delete_workloads()
        election = Election(self._leases, self.fence, _TIMING, f"cleanup_{identity()}", lambda *_: None)
        task = asyncio.create_task(election.work())
        try:
            await self._lead()
            await self._nodes()
            await self._policy()
            await self._pod_devices()
            await self._node_devices()
            if self.scope.delete_crds:
                await self._crds()
            await self._agent_leases()
        finally:
            await election.end(lambda: self.fenced.settle(_SETTLE_SECONDS))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for lease in (names.OPERATOR_LEASE, *SCHEDULERS):
            await self.progress.retrying(partial(self.free_objects.delete, LEASE, lease, self.scope.namespace))

    async def _delete_workloads(self) -> None:
        self.progress.begin(f"deleting the workloads in namespace {self.scope.namespace}")
        for kind, name in workloads_of(self.scope):
            self.progress.step = f"deleting {kind} {name}"
            if await self.progress.retrying(partial(self.free_objects.delete, kind, name, self.scope.namespace)):
                click.echo(f"deleted {kind} {name}")
        self.progress.begin("waiting until the pods of agents, operators and schedulers have ended", _PODS_SECONDS)
        try:
            async with asyncio.timeout(_PODS_SECONDS):
                await self.progress.until(partial(_pods_left, LeftoversApi(self.free), self.scope.namespace))
        except TimeoutError:
            self._goes_on(f"pods are {self.progress.missing}: the Lease keeps operators from writing")

    def _goes_on(self, although: str) -> None:
        click.echo(f"going on although {although if self.progress.missing else self.progress.trouble}")

    async def _lead(self) -> None:
        self.progress.begin("waiting until no operator leads", _LEAD_SECONDS)
        try:
            async with asyncio.timeout(_LEAD_SECONDS):
                await self.progress.until(self._led_by_another)
        except TimeoutError as exc:
            if self.progress.missing:
                raise StillLed(self.progress.missing, _LEAD_SECONDS) from exc
            raise Overdue(_LEAD_SECONDS, self.progress.step, self.progress.trouble) from exc

    async def _led_by_another(self) -> str:
        if self.fence.is_open:
            return ""
        if isinstance(self._leases.failure, Forbidden):
            raise self._leases.failure
        return (await self._leases.read()).holder or "that led last"

    async def _nodes(self) -> None:
        self.progress.begin("removing capacity, taint and labels from Nodes")
        nodes = await self.progress.retrying(partial(self._cluster.list_all, NODES))
        wanted = withdrawals(nodes)
        await self._all(partial(self._node, node, found) for node, found in wanted)
        click.echo(f"Nodes: {len(wanted)} of {len(nodes)} had capacity, taint or labels of ours")

    async def _node(self, node: NodeRecord, wanted: Withdrawal) -> None:
        """Removes it from one Node, retrying when others write the Node; accepts a deleted Node."""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    node = await self._capacity.read_node(wanted.node)
                now = withdrawal(node)
                if now.is_nothing:
                    break
                if now.capacity:
                    node = await self._capacity.apply_capacity(node, {}, force=True)
                if now.labels:
                    node = await self._node_labels.label_node(node, dict.fromkeys(now.labels))
                if now.is_tainted:
                    node = await self._node_labels.taint_node(node.name, node.uid, is_tainted=False)
                for resource, owners in staying(now, node).items():
                    click.echo(f"Node {node.name}: {resource} stays: also owned by {owners}")
                break
            except NotFound:
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        gone = [*wanted.capacity, *wanted.labels, *(["the taint"] if wanted.is_tainted else [])]
        click.echo(f"Node {wanted.node}: removed {', '.join(gone)}")

    async def _policy(self) -> None:
        self.progress.begin(f"deleting the policy {NAME}")
        policies = RequiredPluginsApi(self.fenced)
        for kind in (BINDINGS, POLICIES):
            try:
                await self.progress.retrying(partial(policies.delete, kind))
            except NotFound:
                continue
            click.echo(f"deleted {kind} {NAME}")

    async def _pod_devices(self) -> None:
        self.progress.begin("deleting PodDevices")
        try:
            found = await self.progress.retrying(partial(self._cluster.list_all, POD_DEVICES))
        except NotFound:
            return
        api = PodDevicesApi(self.fenced)
        await self._all(partial(_unless_gone, partial(api.delete_pod_device, record)) for record in found)
        click.echo(f"deleted {len(found)} PodDevices; pods keep running")

    async def _node_devices(self) -> None:
        self.progress.begin("deleting NodeDevices")
        try:
            found = await self.progress.retrying(self._leftovers.node_devices)
        except NotFound:
            return
        kept = [left for left in found if is_kept(left, self.scope)]
        gone = [left for left in found if not is_kept(left, self.scope)]
        await self._all(partial(self._leftovers.delete_node_device, left) for left in gone)
        await self._all(partial(_unless_gone, partial(self._leftovers.clear_status, left)) for left in kept)
        click.echo(f"deleted {len(gone)} NodeDevices")
        for left in kept:
            click.echo(
                f"kept NodeDevice {left.metadata.name}, without status: an administrator has cordoned devices in it"
            )

    async def _agent_leases(self) -> None:
        """With their namespace, if requested. It is gone when this returns: nothing can be created in one that is being deleted."""
        name = self.scope.leases_namespace
        if not self.scope.delete_leases_namespace:
            self.progress.begin(f"deleting the agents' Leases in namespace {name}")
            await self.progress.retrying(partial(self.fenced_objects.delete_all, LEASE, name))
            click.echo(f"deleted the Leases in {name}")
            return
        self.progress.begin(f"deleting namespace {name}", _NAMESPACE_SECONDS)
        if not await self.progress.retrying(partial(self.fenced_objects.delete, NAMESPACE, name)):
            return
        try:
            async with asyncio.timeout(_NAMESPACE_SECONDS):
                await self.progress.until(partial(self._remaining, NAMESPACE, name, "is still being deleted"))
            click.echo(f"deleted namespace {name}, with the agents' Leases")
        except TimeoutError:
            self._goes_on(f"namespace {name} is still being deleted: its conditions name the cause")

    async def _crds(self) -> None:
        for name in NAMES:
            self.progress.begin(f"deleting {name}")
            if await self.progress.retrying(partial(self.fenced_objects.delete, CRD, name)):
                await self.progress.until(partial(self._remaining, CRD, name, "still exists"))
                click.echo(f"deleted {name}")

    async def _remaining(self, kind: str, name: str, text: str) -> str:
        return f"{name} {text}" if await self.fenced_objects.exists(kind, name) else ""

    async def _all(self, actions: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Do these concurrently, as many at a time as the client sends."""
        async with asyncio.TaskGroup() as group:
            for action in actions:
                group.create_task(self.progress.retrying(action))


async def _unless_gone(action: Callable[[], Awaitable[None]]) -> None:
    try:
        await action()
    except (NotFound, Conflict):
        return


async def _pods_left(leftovers: LeftoversApi, namespace: str) -> str:
    left = await leftovers.pods(namespace)
    return "still running: " + ", ".join(f"{pod} on {node or 'no node'}" for pod, node in left.items()) if left else ""


@click.command(cls=command.OneCommand, context_settings=command.SETTINGS)
@command.kubeconfig_option
@command.namespace_option
@command.leases_namespace_option
@click.option("--deployment", default="nodedevice-operator", help="Deployment of the operator, deleted first.")
@click.option(
    "--daemon-set",
    "daemon_sets",
    multiple=True,
    default=["nodedevice-agent"],
    help="DaemonSet of the agents, deleted first; once for each pool.",
)
@click.option(
    "--delete-crds",
    is_flag=True,
    help="Delete the CRDs too, and with them every cordon. Without it a NodeDevice with a cordon is kept.",
)
@click.option(
    "--delete-leases-namespace",
    is_flag=True,
    help="Delete the namespace of the agents' Leases too, with all its content, and wait until it is gone.",
)
@click.option("--timeout-seconds", type=click.FloatRange(1, 3600), default=_SECONDS, help="Time limit for all of it.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask. Required if stdin is not a terminal.")
def cleanup(
    kubeconfig: str | None, namespace: str | None, timeout_seconds: float, dry_run: bool, yes: bool, **options: Any
) -> None:
    """Remove everything that agents and operators have written, and print it.

    Prints its plan and the cluster first, and asks. Deletes the workloads and holds the operators' Lease, so that nothing is
    written again. Stop agents that run as host processes yourself. Pods keep running with their devices.
    """
    login = credentials.load(kubeconfig)
    scope = CleanupScope(namespace=namespace or login.settings.namespace or names.SYSTEM_NAMESPACE, **options)
    if scope.delete_leases_namespace and scope.leases_namespace == scope.namespace:
        raise click.UsageError(
            f"--delete-leases-namespace: {scope.namespace} is the operator's own; helm uninstall keeps it"
        )
    click.echo(f"cleanup of {login.cluster}:")
    found, spent = asyncio.run(_survey(login, scope, timeout_seconds))
    for line in plan(scope, found):
        click.echo(f"  {line}")
    if dry_run:
        click.echo("dry run: nothing was changed")
        return
    if not yes:
        _ask()
    try:
        asyncio.run(_run(login, scope, timeout_seconds, spent))
    except ExceptionGroup as group:
        # several objects concurrently: the first failure is reported, the others are alike
        raise click.ClickException(str(group.exceptions[0])) from group


def _ask() -> None:
    """Asks for confirmation. Raises click.Abort if declined, click.UsageError if stdin is not a terminal."""
    # outside of the event loop, in which Ctrl-C would not end it
    if not _is_terminal():
        raise click.UsageError(
            "stdin is not a terminal, so the command cannot ask: pass --yes, or --dry-run to see the plan only"
        )
    click.confirm("Do all of this?", abort=True)


def _is_terminal() -> bool:
    # None if closed
    return sys.stdin is not None and sys.stdin.isatty()


async def _survey(login: Credentials, scope: CleanupScope, seconds: float) -> tuple[Survey, float]:
    """The objects to remove, and the seconds that the survey took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with command.connected(login) as client, command.within(seconds) as progress:
        found = await survey(client, _objects(login), scope, progress)
    return found, loop.time() - began


async def _run(login: Credentials, scope: CleanupScope, seconds: float, spent: float) -> None:
    fence = WriteFence()
    async with (
        command.connected(login) as free,
        command.connected(login, fence) as fenced,
        command.within(seconds, spent) as progress,
    ):
        await Cleanup(free, fenced, _objects(login), _objects(login, fence), fence, scope, progress).run()
    click.echo("nodedevice is removed, except for the objects reported above")


def _objects(login: credentials.Credentials, fence: WriteFence | None = None) -> "Objects":
    # The models of the kubernetes package take 2 MiB, which the operator does not need.
    from nodedevice_operator.cli.objects import Objects
    from nodedevice_operator.kube.typed import typed_client

    return Objects(typed_client(login, fence))
