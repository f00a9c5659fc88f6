"""Kills the agent of one node at random points and checks, at each, what it wrote and what it publishes after the restart.

A point is a kill. Then, with the agent dead: the checkpoint is valid (or was never written), and contains all that was published,
and all that was ever observed, of pods that still exist. After most kills the agent restarts undisturbed, and all of that has to be
in the API again; after the others it is killed while it starts. Every status in the API is checked, too.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nodedevice_agent.devicemanager.records.checkpoint import CheckpointCorrupt
from nodedevice_api.names import node_device_name

from tests.cluster.api import ApiError, AsyncClient, NodeDevice
from tests.robustness.crash.invariants import Holdings, Ledger, published, saved, shared_devices, unmet, wrong_numbers
from tests.robustness.crash.node import RESOURCES, CrashNode
from tests.robustness.crash.pod_churn import PodChurn, needs

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.05
_UNDISTURBED_SHARE = 0.7
_NEW_PLUGIN_SHARE = 0.15
_STEPS = 12
_NOT_FOUND = 404


@dataclass
class Results:
    """passed: points without a failure. failures: sentences, each naming node and point.

    in_writing: kills with a whole checkpoint begun and not in place; in_journal: with changes in the journal alone.
    """

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    statuses: int = 0
    pods: int = 0
    allocations: int = 0
    in_writing: int = 0
    in_journal: int = 0


class KillRun:
    """run() once; failures are in the results."""

    def __init__(
        self, client: AsyncClient, namespace: str, node: CrashNode, chance: random.Random, results: Results
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._node = node
        self._chance = chance
        self._results = results
        self._pods = PodChurn(client, namespace, node.name, chance)
        self._ledger = Ledger()
        self._seen: dict[str, Holdings] = {resource: {} for resource in RESOURCES}
        self._at = "before the first kill"
        self._has_failed = False

    async def run(self, points: int) -> None:
        self._node.start()
        watches = [asyncio.create_task(self._watch(resource)) for resource in RESOURCES]
        churning = asyncio.create_task(self._pods.run())
        try:
            await self._recovered({})
            for point in range(1, points + 1):
                self._has_failed = False
                await self._point(point, is_last=point == points)
                self._results.passed += not self._has_failed
                for task in (*watches, churning):
                    if task.done():
                        task.result()
            self._pods.stop()
            await churning
            await self._end()
        finally:
            for task in (*watches, churning):
                task.cancel()
            await asyncio.wait([*watches, churning])
            self._results.pods += self._pods.created

    async def _point(self, point: int, is_last: bool) -> None:
        is_undisturbed = is_last or self._chance.random() < _UNDISTURBED_SHARE
        self._at = f"point {point}"
        await self._kill()
        holdings = await self._check_checkpoint()
        self._node.agent.start()
        if is_undisturbed:
            await self._recovered(holdings)
        else:
            # the next kill comes while it starts
            await asyncio.sleep(self._chance.uniform(0, 1.2))

    async def _kill(self) -> None:
        if self._chance.random() < 0.5:
            step = self._chance.randint(1, _STEPS)
            await asyncio.to_thread(self._node.kill_at_file_event, step, 2.0)
        else:
            await asyncio.sleep(self._chance.uniform(0, 0.8))
            self._node.kill(self._node.agent)
        if self._chance.random() < _NEW_PLUGIN_SHARE:
            self._node.replace_plugin(self._chance.randrange(len(RESOURCES)))
        self._results.in_writing += (self._node.state_dir / ".checkpoint.json.tmp").exists()

    async def _check_checkpoint(self) -> Holdings:
        """With the agent dead. Returns the allocations in the checkpoint."""
        try:
            checkpoint = self._node.checkpoint()
        except CheckpointCorrupt as error:
            self._fail([f"invalid checkpoint: {error}"])
            return {}
        self._fail([f"set aside: {path.name}" for path in self._node.state_dir.glob("*.unreadable-*")])
        self._results.in_journal += self._node.has_journal_only_changes(checkpoint)
        holdings = saved(checkpoint)
        self._results.allocations += len(holdings)
        alive = await self._pods.alive()
        self._fail(f"in the API: {text}" for text in self._ledger.add(await self._published()))
        self._fail(f"in the checkpoint: {text}" for text in self._ledger.add(holdings))
        self._fail(f"in the checkpoint: {text}" for text in self._ledger.lost(holdings, alive))
        return holdings

    async def _recovered(self, holdings: Holdings) -> None:
        """Wait until the new agent has published all that the old one had saved of pods that still exist."""
        await self._node.until_ready(_TIMEOUT_SECONDS)
        await self._until("not published again after the restart", partial(self._unpublished, holdings))

    async def _unpublished(self, holdings: Holdings) -> list[str]:
        observed = await self._published()
        alive = await self._pods.alive()
        return [f"{h} {ids}" for h, ids in holdings.items() if h.pod_uid in alive and observed.get(h) != ids]

    async def _end(self) -> None:
        """With healthy devices and a single pod, it has all that it requests. Without it, no device is allocated."""
        self._at = "at the end"
        self._node.stop_flapping()
        await self._pods.keep(1)
        await self._until("pods without their devices", self._pods_unmet)
        await self._pods.keep(0)
        await self._until("devices that were not released", self._left_over)

    async def _pods_unmet(self) -> list[str]:
        observed = await self._published()
        return [text for pod in (await self._pods.alive()).values() for text in unmet(needs(pod), observed)]

    async def _left_over(self) -> list[str]:
        return [f"{h} {ids}" for h, ids in {**await self._published(), **saved(self._node.checkpoint())}.items()]

    async def _until(self, what: str, failures: Callable[[], Awaitable[list[str]]]) -> None:
        found: list[str] = []
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                while found := await failures():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._fail(f"{what}: {text}" for text in found)

    # -- the API -----------------------------------------------------------------------------------------

    async def _published(self) -> Holdings:
        observed: Holdings = {}
        for resource in RESOURCES:
            try:
                found: Any = await self._client.get(NodeDevice, node_device_name(self._node.name, resource))
            except ApiError as error:
                if error.status.code != _NOT_FOUND:
                    raise
                continue
            observed |= published(resource, found.status or {})
        return observed

    async def _watch(self, resource: str) -> None:
        fields: Any = {"metadata.name": node_device_name(self._node.name, resource)}
        found: Any
        async for _, found in self._client.watch(NodeDevice, fields=fields):
            if found.status:
                await self._check_status(resource, found.status)

    async def _check_status(self, resource: str, status: dict[str, Any]) -> None:
        self._results.statuses += 1
        holdings = published(resource, status)
        self._fail(f"{resource}: {text}" for text in wrong_numbers(status))
        self._fail(f"{resource}: {text}" for text in shared_devices(holdings))
        self._fail(f"in a status: {text}" for text in self._ledger.add(holdings))
        gone = self._seen[resource].keys() - holdings.keys()
        self._seen[resource] = holdings
        if gone:
            alive = await self._pods.alive()
            self._fail(f"{h} is no longer published, and its pod exists" for h in gone if h.pod_uid in alive)

    def _fail(self, sentences: Any) -> None:
        failures = [f"{self._node.name}, {self._at}: {sentence}" for sentence in sentences]
        self._results.failures += failures
        self._has_failed = self._has_failed or bool(failures)
