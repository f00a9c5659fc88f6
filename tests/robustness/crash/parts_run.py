"""Pods with units of GPUs' memory come and go, and agent and plugin are killed at random steps; what the agent wrote is checked.

At each check: no unit is held by two pods; each container has as many units as it requests, all of one GPU and the same as before,
and its directory.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.kube.parts import part_ids
from nodedevice_api.names import node_device_name
from nodedevice_api.nodedevice import HeldParts
from nodedevice_api.parts import parent_and_number

from tests.cluster.api import AsyncClient, NodeDevice, Object
from tests.robustness.crash.invariants import Holder, Holdings, Ledger, saved, unmet
from tests.robustness.crash.parts_node import GPUS, UNITS, UNITS_PER_GPU, PartsNode
from tests.robustness.crash.pod_churn import PodChurn

_MOST_PODS = 24
_KILL_SHARE = 0.02
_CHECK_SHARE = 0.05
_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass
class PartsResults:
    """failures: sentences, each naming the step. holdings, directories: how many were compared."""

    failures: list[str] = field(default_factory=list)
    kills: int = 0
    checks: int = 0
    holdings: int = 0
    directories: int = 0
    pods: int = 0


class PartsRun:
    """run() once; failures are in the results."""

    def __init__(self, client: AsyncClient, namespace: str, node: PartsNode, chance: random.Random) -> None:
        self.results = PartsResults()
        self._client = client
        self._node = node
        self._node_device = node_device_name(node.name, UNITS)
        self._chance = chance
        self._pods = PodChurn(client, namespace, node.name, chance, pod_of_units, _MOST_PODS)
        self._ledger = Ledger()
        self._requested: dict[Holder, int] = {}
        self._at = "at the start"

    async def run(self, steps: int) -> None:
        self._node.start()
        await self._node.until_ready(_TIMEOUT_SECONDS)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async for _, found in self._client.watch(NodeDevice, fields={"metadata.name": self._node_device}):
                conditions = {each.type: each.status for each in (found.status and found.status.conditions) or ()}
                if conditions.get("Registered") == "True":
                    break
        for step in range(1, steps + 1):
            self._at = f"step {step}"
            await self._pods.step()
            fate = self._chance.random()
            if fate < _KILL_SHARE:
                await self._kill()
            elif fate < _KILL_SHARE + _CHECK_SHARE:
                await self._check()
        await self._end()
        self.results.pods = self._pods.created

    async def _kill(self) -> None:
        """Agent, plugin or both; the next steps come while they start."""
        node = self._node
        [plugin] = node.plugins
        killed = self._chance.choice([[node.agent], [plugin], [node.agent, plugin]])
        for process in killed:
            node.kill(process)
        self.results.kills += 1
        await self._check()
        for process in killed:
            process.start()

    async def _check(self) -> None:
        checkpoint = self._node.checkpoint()
        holdings, directories = saved(checkpoint), self._node.directories()
        # afterwards: what ends meanwhile may have been released
        alive = await self._alive()
        self.results.checks += 1
        self.results.holdings += len(holdings)
        self.results.directories += len(directories)
        self._fail(self._ledger.add(holdings))
        self._fail(self._ledger.lost(holdings, alive))
        self._fail(misplaced(holdings, self._requested))
        if checkpoint is not None:
            self._fail(without_directory(checkpoint, alive, directories))
        shown = await self._published()
        self._fail(f"in the API: {text}" for text in (*self._ledger.add(shown), *misplaced(shown, self._requested)))

    async def _published(self) -> Holdings:
        found: Any = await self._client.get(NodeDevice, self._node_device)
        return {
            Holder(UNITS, entry["podUID"], entry["container"]): tuple(
                sorted(part_ids(msgspec.convert(entry["parts"], tuple[HeldParts, ...]), UNITS_PER_GPU * GPUS))
            )
            for entry in found.status["allocations"]
        }

    async def _alive(self) -> dict[str, Any]:
        """Pods that have not ended, by UID; what they request is remembered."""
        alive = await self._pods.alive()
        for uid, pod in alive.items():
            for container in (*(pod.spec.initContainers or ()), *pod.spec.containers):
                self._requested[Holder(UNITS, uid, container.name)] = int(container.resources.limits[UNITS])
        return alive

    async def _end(self) -> None:
        """A single pod has all that it requests. Without pods no unit is held, and no directory is left."""
        self._at = "at the end"
        await self._node.until_ready(_TIMEOUT_SECONDS)
        await self._pods.keep(1)
        # one that is being deleted and has nothing yet is given nothing
        kept = {uid for uid, pod in (await self._alive()).items() if pod.metadata.deletionTimestamp is None}
        needs = [(holder, count) for holder, count in self._requested.items() if holder.pod_uid in kept]
        await self._until(lambda: list(unmet(needs, saved(self._node.checkpoint()))))
        await self._check()
        await self._pods.keep(0)
        await self._until(lambda: [f"{holder} has not been released" for holder in saved(self._node.checkpoint())])
        await self._until(lambda: [f"directory {name} has not been removed" for name in self._node.directories()])

    async def _until(self, failures: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (found := failures()) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        self._fail(found)

    def _fail(self, sentences: Iterable[str]) -> None:
        self.results.failures += [f"{self._at}: {sentence}" for sentence in sentences]


def misplaced(holdings: Holdings, requested: dict[Holder, int]) -> list[str]:
    """Containers with units of two GPUs, or with more or fewer than they request."""
    wrong = []
    for holder, ids in holdings.items():
        parents = {found and found[0] for found in map(parent_and_number, ids)}
        if len(parents) != 1:
            wrong.append(f"{holder} holds units of {len(parents)} GPUs: {ids}")
        if len(ids) != requested.get(holder, len(ids)):
            wrong.append(f"{holder} requests {requested[holder]} units and holds {len(ids)}")
    return wrong


def without_directory(checkpoint: Checkpoint, alive: Collection[str], directories: Collection[str]) -> list[str]:
    """Containers of these pods that the plugin has answered for, and whose directory is not there."""
    answered = (a for a in checkpoint.allocations if a.response is not None and a.pod_uid in alive)
    return [
        f"{a.pod_uid}/{a.container} has no directory"
        for a in answered
        if f"{a.pod_uid}_{a.container}" not in directories
    ]


def pod_of_units(node_name: str, chance: random.Random) -> Object:
    """One to three containers, sometimes an init container, with 1 to 80 units each."""
    init = [_container("init", chance)] if chance.random() < 0.2 else []
    containers = [_container(f"main-{number}", chance) for number in range(chance.choice([1, 1, 2, 3]))]
    return Object(nodeName=node_name, containers=containers, initContainers=init, terminationGracePeriodSeconds=5)


def _container(name: str, chance: random.Random) -> Object:
    most = chance.choice([8, UNITS_PER_GPU])
    units = Object(limits={UNITS: str(chance.randint(1, most))})
    return Object(name=name, image="none", resources=units)
