"""Takes back what agents and operators have written in a cluster, in an order in which nobody writes it again.

The chart's workloads end first. Then this holds the Lease by which operators agree on who writes, so that one that runs elsewhere
waits; every write passes the same fence as an operator's. Each step looks at what is there: run again, it goes on where it ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from nodedevice_operator.capacity.api import CapacityApi
from nodedevice_operator.cli import progress as command
from nodedevice_operator.cli.crd_objects import NAMES, Definitions
from nodedevice_operator.cli.leftovers import Leavings, Left
from nodedevice_operator.cli.withdrawal import Withdrawal, staying, withdrawal
from nodedevice_operator.cli.workloads import CHECK_POD, DAEMON_SET, DEPLOYMENT, POD, Workloads
from nodedevice_operator.errors import Conflict, NotFound, StillLed
from nodedevice_operator.kube.api import Cluster
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leader.election import LONGEST_LEASE_SECONDS, Timing
from nodedevice_operator.leader.elector import Election, identity
from nodedevice_operator.leader.lease import LeaderLeases
from nodedevice_operator.nodelabels.api import NodeLabelsApi
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.poddevices.api import PodDevicesApi
from nodedevice_operator.requiredplugins.objects import PolicyObjects
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

# Renewed every few seconds, and not lost to a slow answer; nobody else wants it.
_TIMING: Final = Timing(20)
# As long as any other's Lease may last, and a little.
_LEAD_SECONDS: Final = LONGEST_LEASE_SECONDS + 5.0
# Two of an agent's graces. A pod of a node that is away goes only when the node is back, or is deleted.
_PODS_SECONDS: Final = 40.0
_SETTLE_SECONDS: Final = 1.0
# An empty namespace goes within seconds. One that an API service holds up, which the API server cannot reach, may stay for days.
_NAMESPACE_SECONDS: Final = 20.0
# A Node changes with every heartbeat, and an apply names the version that was read.
_ATTEMPTS: Final = 20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be cleaned up. namespace: of the release, with the operator's Lease.

    delete_leases_namespace: that namespace goes as a whole; else only the Leases in it.
    """

    namespace: str
    leases_namespace: str
    deployment: str
    daemon_set: str
    delete_definitions: bool
    delete_leases_namespace: bool


class Cleanup:
    """One run of it. say: told each thing that was done, in a line."""

    def __init__(self, login: Credentials, scope: Scope, progress: command.Progress, say: Say) -> None:
        self._scope = scope
        self._progress = progress
        self._say = say
        self._fence = WriteFence()
        # what opens the fence, and what ends the workloads, passes none
        self._free = command.client(login)
        self._fenced = command.client(login, self._fence)
        self._cluster = Cluster(self._fenced)
        self._capacity = CapacityApi(self._fenced)
        self._node_labels = NodeLabelsApi(self._fenced)
        self._pod_devices_api = PodDevicesApi(self._fenced)
        self._leavings = Leavings(self._fenced)
        self._policies = PolicyObjects(self._fenced)
        self._workloads = Workloads(self._free, scope.namespace)
        self._election = Election(
            LeaderLeases(self._free, scope.namespace), self._fence, _TIMING, f"cleanup_{identity()}", lambda *_: None
        )

    async def run(self) -> None:
        """Raises OperatorError; what was done by then is done."""
        try:
            await self._end_workloads()
            election = asyncio.create_task(self._election.work())
            try:
                await self._lead()
                await self._take_back()
            finally:
                await self._election.end(lambda: self._fenced.settle(_SETTLE_SECONDS))
                election.cancel()
                await asyncio.gather(election, return_exceptions=True)
            await self._progress.patiently(partial(Leavings(self._free).delete_operator_lease, self._scope.namespace))
        finally:
            await self._free.close()
            await self._fenced.close()

    async def _end_workloads(self) -> None:
        scope = self._scope
        for kind, name in ((DEPLOYMENT, scope.deployment), (DAEMON_SET, scope.daemon_set), (POD, CHECK_POD)):
            self._progress.step = f"deleting {kind} {name}"
            if await self._progress.patiently(partial(self._workloads.delete, kind, name)):
                self._say(f"deleted {kind} {name}")
        self._progress.step = "waiting until the pods of agents and operators have ended"
        try:
            async with asyncio.timeout(_PODS_SECONDS):
                await self._progress.until(self._pods_left)
        except TimeoutError:
            self._say(f"going on although {self._progress.trouble}: the Lease keeps operators from writing")

    async def _pods_left(self) -> str:
        left = await self._workloads.pods()
        return (
            "still there: " + ", ".join(f"{pod} on {node or 'no node'}" for pod, node in left.items()) if left else ""
        )

    async def _lead(self) -> None:
        self._progress.step = "waiting until no operator leads"
        try:
            async with asyncio.timeout(_LEAD_SECONDS):
                await self._progress.until(self._led_by_another)
        except TimeoutError as exc:
            raise StillLed(self._progress.trouble or "that led last", _LEAD_SECONDS) from exc

    async def _led_by_another(self) -> str:
        if self._fence.is_open:
            return ""
        return (await LeaderLeases(self._free, self._scope.namespace).read()).holder or "(nobody yet)"

    async def _take_back(self) -> None:
        await self._nodes()
        await self._policy()
        await self._pod_devices()
        await self._node_devices()
        if self._scope.delete_definitions:
            await self._definitions()
        await self._agent_leases()

    async def _nodes(self) -> None:
        self._progress.step = "taking capacity, taint and labels off Nodes"
        nodes = (await self._progress.patiently(self._cluster.list_nodes)).records
        wanted = [(node, found) for node in nodes if not (found := withdrawal(node)).is_nothing]
        await self._all(partial(self._node, node, found) for node, found in wanted)
        self._say(f"Nodes: {len(wanted)} of {len(nodes)} had something of ours")

    async def _node(self, node: NodeRecord, wanted: Withdrawal) -> None:
        """Take it off one Node, whoever else writes it at the same time; gone meanwhile is fine."""
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
                    self._say(f"Node {node.name}: {resource} stays, {owners} has it too")
                break
            except NotFound:
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        gone = [*wanted.capacity, *wanted.labels, *(["the taint"] if wanted.is_tainted else [])]
        self._say(f"Node {wanted.node}: took back {', '.join(gone)}")

    async def _policy(self) -> None:
        self._progress.step = f"deleting the policy {NAME}"
        for kind in (BINDINGS, POLICIES):
            try:
                await self._progress.patiently(partial(self._policies.delete, kind))
            except NotFound:
                continue
            self._say(f"deleted {kind} {NAME}")

    async def _pod_devices(self) -> None:
        self._progress.step = "deleting PodDevices"
        try:
            found = (await self._progress.patiently(self._cluster.list_pod_devices)).records
        except NotFound:
            return
        await self._all(partial(_gone, partial(self._pod_devices_api.delete_pod_device, record)) for record in found)
        self._say(f"deleted {len(found)} PodDevices; pods go on running")

    async def _node_devices(self) -> None:
        self._progress.step = "deleting NodeDevices"
        found: list[Left] = []
        try:
            async for page in self._leavings.node_devices():
                found += page
        except NotFound:
            return
        kept = [left for left in found if left.is_cordoned and not self._scope.delete_definitions]
        gone = [left for left in found if left not in kept]
        await self._all(partial(self._leavings.delete_node_device, left) for left in gone)
        await self._all(partial(_gone, partial(self._leavings.clear_status, left)) for left in kept)
        self._say(f"deleted {len(gone)} NodeDevices")
        for left in kept:
            self._say(
                f"kept NodeDevice {left.metadata.name}, without status: an administrator has cordoned devices of it"
            )

    async def _agent_leases(self) -> None:
        """Their namespace with them, where that was asked for: gone when this returns, so that nothing is made in one that ends."""
        name = self._scope.leases_namespace
        if not self._scope.delete_leases_namespace:
            self._progress.step = "deleting the agents' Leases"
            await self._progress.patiently(partial(self._leavings.delete_agent_leases, name))
            self._say(f"deleted the Leases in {name}")
            return
        self._progress.step = f"deleting namespace {name}"
        if not await self._progress.patiently(partial(self._leavings.delete_namespace, name)):
            return
        try:
            async with asyncio.timeout(_NAMESPACE_SECONDS):
                await self._progress.until(partial(_namespace_left, self._leavings, name))
            self._say(f"deleted namespace {name}, with the agents' Leases")
        except TimeoutError:
            self._say(f"going on although namespace {name} is still being deleted: its conditions say what holds it up")

    async def _definitions(self) -> None:
        definitions = Definitions(self._fenced)
        for name in NAMES:
            self._progress.step = f"deleting {name}"
            if await self._progress.patiently(partial(definitions.delete, name)):
                await self._progress.until(partial(_is_there, definitions, name))
                self._say(f"deleted {name}")

    async def _all(self, actions: Iterable[Callable[[], Awaitable[None]]]) -> None:
        """Do these side by side, as many at a time as the client has threads."""
        async with asyncio.TaskGroup() as group:
            for action in actions:
                group.create_task(self._progress.patiently(action))


async def _gone(action: Callable[[], Awaitable[None]]) -> None:
    """Do it; an object that is gone already, or another by now, is fine."""
    try:
        await action()
    except (NotFound, Conflict):
        return


async def _namespace_left(leavings: Leavings, name: str) -> str:
    return f"namespace {name} is still being deleted" if await leavings.has_namespace(name) else ""


async def _is_there(definitions: Definitions, name: str) -> str:
    return f"{name} is still there" if await definitions.read(name) is not None else ""
