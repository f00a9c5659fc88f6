"""One node under siege: kills its agent at random points and judges, at each, what was written down and what comes back.

A point is a kill. Then, with the agent dead: the checkpoint can be read (or was never written); whatever was published of pods
that still exist is in it, and whatever they were ever known to hold. In most points the agent then comes up in peace, and all of
that has to be in the API again; in the others it is killed while it starts. Every status that the API ever showed is judged too.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from lightkube import ApiError, AsyncClient
from lightkube.types import on_error_retry
from nodedevice_agent.checkpoint.files import FILE_NAME, journal_path
from nodedevice_agent.devicemanager.state import CheckpointCorrupt
from nodedevice_api.names import node_device_name

from tests.integration.crds.custom_resources import NodeDevice
from tests.robustness.crash.invariants import Holdings, Ledger, published, saved, shared_devices, unmet, wrong_sums
from tests.robustness.crash.node import RESOURCES, Victim
from tests.robustness.crash.pod_churn import Load, needs

_PATIENCE_SECONDS = 40.0
_POLL_SECONDS = 0.05
_CHANCE_OF_PEACE = 0.7
_CHANCE_OF_A_NEW_PLUGIN = 0.15
_STEPS_OF_A_WRITE = 12
_NOT_FOUND = 404


@dataclass
class Tally:
    """passed: points at which nothing was wrong. failures: sentences, each naming node and point.

    in_writing: kills with a whole checkpoint begun and not in place; in_journal: with lines in the journal.
    """

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    statuses: int = 0
    pods: int = 0
    allocations: int = 0
    in_writing: int = 0
    in_journal: int = 0


class Siege:
    """run() once; what went wrong is in the tally."""

    def __init__(
        self, client: AsyncClient, namespace: str, victim: Victim, chance: random.Random, tally: Tally
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._victim = victim
        self._chance = chance
        self._tally = tally
        self._load = Load(client, namespace, victim.name, chance)
        self._ledger = Ledger()
        self._seen: dict[str, Holdings] = {resource: {} for resource in RESOURCES}
        self._at = "before the first kill"
        self._is_wrong = False

    async def run(self, points: int) -> None:
        self._victim.start()
        watching = [asyncio.create_task(self._watch(resource)) for resource in RESOURCES]
        loading = asyncio.create_task(self._load.run())
        try:
            await self._recovered({})
            for point in range(1, points + 1):
                self._is_wrong = False
                await self._point(point, is_last=point == points)
                self._tally.passed += not self._is_wrong
                for task in (*watching, loading):
                    if task.done():
                        task.result()
            self._load.stop()
            await loading
            await self._end_well()
        finally:
            for task in (*watching, loading):
                task.cancel()
            await asyncio.wait([*watching, loading])
            self._tally.pods += self._load.made

    async def _point(self, point: int, is_last: bool) -> None:
        is_in_peace = is_last or self._chance.random() < _CHANCE_OF_PEACE
        self._at = f"point {point}"
        await self._kill()
        holdings = await self._judge_what_is_saved()
        self._victim.agent.start()
        if is_in_peace:
            await self._recovered(holdings)
        else:
            # the next kill comes while it starts
            await asyncio.sleep(self._chance.uniform(0, 1.2))

    async def _kill(self) -> None:
        if self._chance.random() < 0.5:
            step = self._chance.randint(1, _STEPS_OF_A_WRITE)
            await asyncio.to_thread(self._victim.kill_at_file_event, step, 2.0)
        else:
            await asyncio.sleep(self._chance.uniform(0, 0.8))
            self._victim.kill()
        if self._chance.random() < _CHANCE_OF_A_NEW_PLUGIN:
            self._victim.replace_plugin(self._chance.randrange(len(RESOURCES)))
        self._tally.in_writing += (self._victim.state_dir / ".checkpoint.json.tmp").exists()
        self._tally.in_journal += journal_path(self._victim.state_dir / FILE_NAME).exists()

    async def _judge_what_is_saved(self) -> Holdings:
        """With the agent dead. Returns what the checkpoint says."""
        try:
            checkpoint = self._victim.checkpoint()
        except CheckpointCorrupt as error:
            self._wrong([f"the checkpoint cannot be read: {error}"])
            return {}
        self._wrong([f"set aside: {path.name}" for path in self._victim.state_dir.glob("*.unreadable-*")])
        holdings = saved(checkpoint)
        self._tally.allocations += len(holdings)
        alive = await self._load.alive()
        self._wrong(f"in the API: {text}" for text in self._ledger.enter(await self._published()))
        self._wrong(f"in the checkpoint: {text}" for text in self._ledger.enter(holdings))
        self._wrong(f"in the checkpoint: {text}" for text in self._ledger.lost(holdings, alive))
        return holdings

    async def _recovered(self, holdings: Holdings) -> None:
        """Wait until the new agent has told all that the old one had saved of pods that still exist."""
        await self._victim.until_told_all(_PATIENCE_SECONDS)
        missing: list[str] = []
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while missing := await self._untold(holdings):
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._wrong(f"not told again after the restart: {text}" for text in missing)

    async def _untold(self, holdings: Holdings) -> list[str]:
        told = await self._published()
        alive = await self._load.alive()
        return [f"{h} {ids}" for h, ids in holdings.items() if h.pod_uid in alive and told.get(h) != ids]

    async def _end_well(self) -> None:
        """Devices well, load gone but for a pod: it has all it asks for. Then without it: nobody holds anything."""
        self._at = "at the end"
        self._victim.calm()
        await self._load.keep(1)
        await self._until("pods without their devices", self._pods_unmet)
        await self._load.keep(0)
        await self._until("devices that nobody gave back", self._left_over)

    async def _pods_unmet(self) -> list[str]:
        told = await self._published()
        return [text for pod in (await self._load.alive()).values() for text in unmet(needs(pod), told)]

    async def _left_over(self) -> list[str]:
        return [f"{h} {ids}" for h, ids in {**await self._published(), **saved(self._victim.checkpoint())}.items()]

    async def _until(self, what: str, wrong: Any) -> None:
        found: list[str] = []
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while found := await wrong():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._wrong(f"{what}: {text}" for text in found)

    # -- what the API shows -----------------------------------------------------------------------------------------

    async def _published(self) -> Holdings:
        told: Holdings = {}
        for resource in RESOURCES:
            try:
                found: Any = await self._client.get(NodeDevice, node_device_name(self._victim.name, resource))
            except ApiError as error:
                if error.status.code != _NOT_FOUND:
                    raise
                continue
            told |= published(resource, found.status or {})
        return told

    async def _watch(self, resource: str) -> None:
        fields: Any = {"metadata.name": node_device_name(self._victim.name, resource)}
        found: Any
        async for _, found in self._client.watch(NodeDevice, fields=fields, on_error=on_error_retry):
            if found.status:
                await self._judge(resource, found.status)

    async def _judge(self, resource: str, status: dict[str, Any]) -> None:
        self._tally.statuses += 1
        holdings = published(resource, status)
        self._wrong(f"{resource}: {text}" for text in wrong_sums(status))
        self._wrong(f"{resource}: {text}" for text in shared_devices(holdings))
        self._wrong(f"told by the API: {text}" for text in self._ledger.enter(holdings))
        gone = self._seen[resource].keys() - holdings.keys()
        self._seen[resource] = holdings
        if gone:
            alive = await self._load.alive()
            self._wrong(f"{h} is no longer told of, and its pod lives" for h in gone if h.pod_uid in alive)

    def _wrong(self, sentences: Any) -> None:
        failures = [f"{self._victim.name}, {self._at}: {sentence}" for sentence in sentences]
        self._tally.failures += failures
        self._is_wrong = self._is_wrong or bool(failures)
