"""Plays the agents of a fleet, in a process of its own, so that its cost is separate.

Reads commands as JSON lines on stdin, and writes a response line to stdout for each. Writes like agents do:
server-side applies of status, Leases by PUT every 20 s. Times are time.monotonic(), which all processes of a machine
share.
"""

import asyncio
import contextlib
import random
import sys
import time
from pathlib import Path

import msgspec
from nodedevice_api import names
from nodedevice_operator.kube.client import CONCURRENT_REQUESTS

from hack.bench.operator import fleet
from hack.bench.operator.api import Api, Refused
from tests.cluster.agent_objects import lease, node_device, now_text

NODES = "/api/v1/nodes"
NODE_DEVICES = f"/apis/{names.API_VERSION}/{names.NODE_DEVICES}"
_PODS = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.AGENTS_NAMESPACE}/leases"
_RENEW_SECONDS = 20.0
_KUBELET = "kubelet"
BARE = "bench-bare"
# Nodes without devices, for the cost of a bare write at the same time.
SPARES = 10
_BARE_SECONDS = 0.2
# Agents are separate processes, and never wait for each other: each request is sent at once, regardless of pending
# responses.
_AGENTS_IN_FLIGHT = 1000
_SEEN_SECONDS = 20.0


class Change(msgspec.Struct, array_like=True):
    """One change of one resource: when its apply was sent, and when a plain watch showed it (0: never)."""

    node: str
    resource: str
    number: int
    sent_at: float
    shown_at: float = 0.0


class Command(msgspec.Struct):
    """do: make, bare or change. nodes: number to make or to write. seconds and rate (per second): of changes."""

    do: str
    nodes: int = 0
    seconds: float = 0.0
    rate: float = 0.0


class Report(msgspec.Struct):
    """bare: writes of spare Nodes, which only the API server handles."""

    seconds: float
    changes: list[Change] = []
    bare: list[Change] = []


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Numbers(msgspec.Struct):
    healthy: int = -1


class _Object(msgspec.Struct):
    metadata: _Meta
    status: _Numbers = msgspec.field(default_factory=_Numbers)


class _Event(msgspec.Struct):
    type: str
    object: _Object


class Generator:
    """The agents of one fleet. maker: creates it, with a limit of parallel requests; agents: sends the agents' own
    requests.
    """

    def __init__(self, maker: Api, agents: Api) -> None:
        self._maker = maker
        self._agents = agents
        self._bare = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._random = random.Random(1)
        self._pods: dict[str, fleet.Owner] = {}
        self._broken: dict[tuple[str, str], bool] = {}
        self._renewals: list[asyncio.Task[None]] = []
        self._waiting: dict[tuple[str, int], Change] = {}

    async def make(self, count: int) -> Report:
        """Create the whole fleet, and renew its Leases from then on."""
        began = time.monotonic()
        owners = await asyncio.gather(*(self._make_node(fleet.node_name(number)) for number in range(count)))
        await asyncio.gather(*(self._make_node(_spare(number)) for number in range(SPARES)))
        versions = await asyncio.gather(*(self._make_agent(owner) for owner in owners))
        for owner, version in zip(owners, versions, strict=True):
            self._renewals.append(asyncio.create_task(self._renew(owner.name, version)))
        return Report(time.monotonic() - began)

    async def write_each(self, count: int) -> Report:
        """Write each Node's capacity, like an operator that finds all Nodes wrong; then reset it.

        Reports the seconds of the first part.
        """
        began = time.monotonic()
        await asyncio.gather(*(self._write_capacity(fleet.node_name(number), 1) for number in range(count)))
        seconds = time.monotonic() - began
        await asyncio.gather(*(self._write_capacity(fleet.node_name(number), 0) for number in range(count)))
        return Report(seconds)

    async def change(self, seconds: float, rate: float) -> Report:
        """Break or repair a device at this rate per second, on one NodeDevice after the other, without waiting for
        responses.
        """
        order = list(self._broken)
        self._random.shuffle(order)
        count = int(seconds * rate)
        version = msgspec.json.decode(await self._agents.get(NODE_DEVICES, {"limit": "1"}), type=_Object)
        watching = asyncio.create_task(self._watch(version.metadata.resource_version))
        began = time.monotonic()
        bare = asyncio.create_task(self._write_bare(began + seconds))
        writes, changes = [], []
        for number in range(count):
            await asyncio.sleep(began + number / rate - time.monotonic())
            node, resource = order[number % len(order)]
            is_broken = self._broken[node, resource] = not self._broken[node, resource]
            change = Change(node, resource, fleet.advertised(is_broken), time.monotonic())
            self._waiting[names.node_device_name(node, resource), change.number] = change
            changes.append(change)
            writes.append(asyncio.create_task(self._publish(self._agents, node, resource)))
        await asyncio.gather(*writes)
        await self._see_all()
        report = Report(time.monotonic() - began, changes, await bare)
        watching.cancel()
        self._waiting.clear()
        return report

    async def _see_all(self) -> None:
        """Wait until the plain watch has shown every change, up to a timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_SECONDS):
                while self._waiting:
                    await asyncio.sleep(0.05)

    async def close(self) -> None:
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)

    async def _make_node(self, name: str) -> fleet.Owner:
        made = msgspec.json.decode(await self._maker.post(NODES, fleet.node(name), _KUBELET), type=_Object)
        await self._maker.merge(f"{NODES}/{name}/status", fleet.node_status(name), _KUBELET)
        return fleet.Owner(name, made.metadata.uid)

    async def _make_agent(self, owner: fleet.Owner) -> str:
        """Create the objects of a node's agent and pods. Returns the resource version of its Lease."""
        made = await self._maker.post(_LEASES, lease(owner.name, now_text()), names.AGENT_FIELD_MANAGER)
        for number in range(fleet.PODS):
            content = await self._maker.post(_PODS, fleet.pod(owner.name, number), _KUBELET)
            pod = msgspec.json.decode(content, type=_Object)
            self._pods[pod.metadata.name] = fleet.Owner(pod.metadata.name, pod.metadata.uid)
        for resource in fleet.RESOURCES:
            body = node_device(owner.name, resource, owner.uid)
            path = f"{NODE_DEVICES}/{body['metadata']['name']}"
            await self._maker.apply(path, body, names.AGENT_FIELD_MANAGER)
            self._broken[owner.name, resource] = False
            await self._publish(self._maker, owner.name, resource)
        for pool in fleet.POOLS:
            # it changes nothing of a Node, so it does not disturb the measurement
            body = node_device(owner.name, pool, owner.uid)
            path = f"{NODE_DEVICES}/{body['metadata']['name']}"
            await self._maker.apply(path, body, names.AGENT_FIELD_MANAGER)
            status = fleet.pool_status(owner.name, pool, self._pods)
            await self._maker.apply(f"{path}/status", status, names.AGENT_FIELD_MANAGER)
        return msgspec.json.decode(made, type=_Object).metadata.resource_version

    async def _publish(self, api: Api, node: str, resource: str) -> None:
        body = fleet.node_device_status(node, resource, self._pods, self._broken[node, resource])
        path = f"{NODE_DEVICES}/{body['metadata']['name']}/status"
        await api.apply(path, body, names.AGENT_FIELD_MANAGER)

    async def _renew(self, node: str, resource_version: str) -> None:
        await asyncio.sleep(self._random.uniform(0, _RENEW_SECONDS))
        while True:
            body = lease(node, now_text(), resource_version=resource_version)
            try:
                answer = await self._agents.put(f"{_LEASES}/{node}", body, names.AGENT_FIELD_MANAGER)
            except Refused:
                # the request may have succeeded: the next one uses the current version
                answer = await self._agents.get(f"{_LEASES}/{node}")
            resource_version = msgspec.json.decode(answer, type=_Object).metadata.resource_version
            await asyncio.sleep(_RENEW_SECONDS * self._random.uniform(0.9, 1.1))

    async def _watch(self, resource_version: str) -> None:
        """Record when a plain watch shows each change: the earliest time at which a client can see it."""
        async for event in self._agents.watch(NODE_DEVICES, _Event, {"resourceVersion": resource_version}):
            change = self._waiting.pop((event.object.metadata.name, event.object.status.healthy), None)
            if change is not None:
                change.shown_at = time.monotonic()

    async def _write_bare(self, until: float) -> list[Change]:
        """Write spare Nodes' capacity, one after the other, as the operator writes that of others."""
        made: list[Change] = []
        while time.monotonic() < until:
            name, number = _spare(len(made) % SPARES), 1 + len(made)
            made.append(Change(name, fleet.RESOURCES[0], number, time.monotonic()))
            await self._write_capacity(name, number)
            await asyncio.sleep(_BARE_SECONDS)
        return made

    async def _write_capacity(self, node: str, number: int) -> None:
        """Write a capacity like the operator does; 0 resets it. At most as many requests in parallel as the operator
        sends.
        """
        quantities = {resource: str(number) for resource in fleet.RESOURCES if number}
        status = {"capacity": quantities, "allocatable": quantities}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status}
        async with self._bare:
            await self._agents.apply(f"{NODES}/{node}/status", body, BARE)


def _spare(number: int) -> str:
    return f"spare-{number:02d}"


async def _commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def main(kubeconfig: Path) -> None:
    reader = await _commands()
    async with Api(kubeconfig) as maker, Api(kubeconfig, _AGENTS_IN_FLIGHT) as agents:
        generator = Generator(maker, agents)
        while line := await reader.readline():
            command = msgspec.json.decode(line, type=Command)
            if command.do == "make":
                report = await generator.make(command.nodes)
            elif command.do == "bare":
                report = await generator.write_each(command.nodes)
            else:
                report = await generator.change(command.seconds, command.rate)
            sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
            sys.stdout.buffer.flush()
        await generator.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
