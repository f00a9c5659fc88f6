"""The runs: pods that are created and deleted, with changing extenders or without any, and a set of pods that stays."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hack.bench.operator.api import Api
from hack.scheduling.cluster import Extenders, extenders, scheduler_alone, scheduler_with
from hack.scheduling.first_fit import placed_units
from hack.scheduling.load import Load, Outcome
from hack.scheduling.node_model import GPUS, UNITS
from tests.cluster.control_plane.control_plane import ControlPlane

_DEMAND = 1.1
_PAUSE_SECONDS = 12.0


@dataclass(frozen=True)
class Site:
    """Where the runs are. folder: for logs."""

    control_plane: ControlPlane
    nodes: list[str]
    folder: Path

    @property
    def gpus(self) -> int:
        return GPUS * len(self.nodes)


@dataclass(frozen=True)
class Filled:
    """outcome: of pods that stay. first_fit: units that first-fit-decreasing places of the same pods. demand: units of
    all pods.
    """

    outcome: Outcome
    first_fit: int
    demand: int


async def with_extenders(
    site: Site, pods: int, seed: int, times: int = 0, every_seconds: float = 0.0
) -> tuple[Outcome, int]:
    """Create and delete pods. times: how often, at most, the active one of two extenders is killed or paused. Returns
    the actual number.
    """
    disturbed = 0
    async with _extended(site, seed) as (load, found):
        work = asyncio.create_task(load.come_and_go(pods))
        while disturbed < times and not (await asyncio.wait([work], timeout=every_seconds))[0]:
            disturbed += await _disturb(found, is_pause=disturbed % 2 == 1)
        return await work, disturbed


async def without(site: Site, pods: int, seed: int) -> Outcome:
    """The same pods with a scheduler that only knows sums."""
    with scheduler_alone(site.control_plane, site.folder) as scheduler:
        async with Api(site.control_plane.admin_kubeconfig) as api, Load(api, site.nodes, scheduler, seed) as load:
            return await load.come_and_go(pods)


async def with_rival(site: Site, pods: int, seed: int) -> Outcome:
    """The same, and every second pod belongs to a scheduler that binds to the same nodes and asks no extender."""
    with scheduler_alone(site.control_plane, site.folder) as rival:
        async with _extended(site, seed, rival) as (load, _):
            return await load.come_and_go(pods)


async def filled(site: Site, seed: int) -> Filled:
    """Pods that stay; more than have room."""
    chance, sizes = random.Random(seed), list[int]()
    while sum(sizes) < _DEMAND * site.gpus * UNITS:
        sizes.append(chance.randint(1, UNITS))
    async with _extended(site, seed) as (load, _):
        outcome = await load.stay(sizes)
    return Filled(outcome, placed_units(sizes, site.gpus, UNITS), sum(sizes))


@asynccontextmanager
async def _extended(site: Site, seed: int, rival: str = "") -> AsyncIterator[tuple[Load, Extenders]]:
    folder = site.folder / f"run-{seed}"
    folder.mkdir(exist_ok=True)
    with extenders(site.control_plane, folder, 2) as found:
        async with (
            scheduler_with(site.control_plane, folder, found) as scheduler,
            Api(site.control_plane.admin_kubeconfig) as api,
            Load(api, site.nodes, scheduler, seed, rival) as load,
        ):
            yield load, found


async def _disturb(found: Extenders, *, is_pause: bool) -> int:
    """Returns whether an active extender was disturbed."""
    if not is_pause:
        return int(await asyncio.to_thread(found.kill))
    paused = await asyncio.to_thread(found.pause)
    if paused is not None:
        # longer than its Lease: another one is active when it continues
        await asyncio.sleep(_PAUSE_SECONDS)
        found.go_on(paused)
    return int(paused is not None)
