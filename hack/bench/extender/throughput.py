"""Pods a second of the same kube-scheduler with and without the extender, in turn: pods that all wait already when it starts."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from nodedevice_operator.objects.bound_pod import BoundPodSchema

from hack.bench.extender import fleet
from hack.bench.operator.api import Api
from hack.bench.results import PER_SECOND, Result, judged
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.scheduling.cluster import ALONE, EXTENDED, extenders, gpu_cluster, scheduler_alone, scheduler_beside
from hack.scheduling.node_model import NodeModel

_NODES: Final = 200
_PODS: Final = 1000
# the rates differ by the moment: other work of the machine, and what the API server has left to do of the round before
_ROUNDS: Final = 3
# of the plain rate that is left with the extender
_LEAST: Final = 0.6
_UNITS: Final = 20
_PODS_PATH: Final = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods"
# the first and the last of them are bound while the scheduler begins and ends
_EDGE: Final = _PODS // 20
_MOST_SECONDS: Final = 300.0

Progress = Callable[[str], None]


class _Event(msgspec.Struct):
    type: str
    object: BoundPodSchema


async def measure(folder: Path, progress: Progress) -> dict[str, Result]:
    """Both rates, and how they compare."""
    plain: list[float] = []
    extended: list[float] = []
    with gpu_cluster(folder / "throughput", _NODES, progress) as (control_plane, nodes):
        async with Api(control_plane.admin_kubeconfig) as api:
            for node in nodes:
                await fleet.publish(api, NodeModel(node))
            for turn in range(1, _ROUNDS + 1):
                plain.append(await _rate(api, ALONE, turn, _alone(control_plane, folder)))
                with extenders(control_plane, folder, 1) as found:
                    beside = scheduler_beside(control_plane, folder, found)
                    extended.append(await _rate(api, EXTENDED, turn, beside))
                progress(f"{turn}: {plain[-1]:.0f} pods a second without the extender, {extended[-1]:.0f} with it")
    slower = [alone / beside for alone, beside in zip(plain, extended, strict=True)]
    return {
        "pods_with_extender": judged(statistics.median(extended), min(extended), PER_SECOND, 100, _ROUNDS * _PODS),
        # no goal: what the other is compared to
        "pods_without_extender": judged(statistics.median(plain), min(plain), PER_SECOND, 0, _ROUNDS * _PODS),
        "pods_without_over_with": judged(statistics.median(slower), max(slower), "ratio", 1 / _LEAST, _ROUNDS),
    }


@asynccontextmanager
async def _alone(control_plane: ControlPlane, folder: Path) -> AsyncIterator[str]:
    with scheduler_alone(control_plane, folder) as name:
        yield name


async def _rate(api: Api, scheduler: str, turn: int, started: AbstractAsyncContextManager[str]) -> float:
    """Pods bound a second, as a watch shows them. The pods are deleted.

    turn: is in their names: KWOK, which plays the nodes, may delete a pod some time later, and then another one of that name.
    """
    names = [f"{scheduler}-{turn}-{number}" for number in range(_PODS)]
    bodies = (fleet.pod(name, _UNITS, scheduler=scheduler) for name in names)
    await asyncio.gather(*(fleet.create_pod(api, body) for body in bodies))
    times = asyncio.create_task(_bind_times(api, frozenset(names)))
    async with started:
        bound = (await asyncio.wait_for(times, _MOST_SECONDS))[_EDGE:-_EDGE]
    await asyncio.gather(*(api.delete(f"{_PODS_PATH}/{name}") for name in names))
    return (len(bound) - 1) / (bound[-1] - bound[0])


async def _bind_times(api: Api, wanted: frozenset[str]) -> list[float]:
    """When a watch showed each of them bound. The API server ends a watch that reads too slowly: another one goes on."""
    times: dict[str, float] = {}
    while len(times) < len(wanted):
        async for event in api.watch(_PODS_PATH, _Event, {}):
            pod = event.object
            if pod.metadata.name in wanted and pod.spec.node_name and pod.metadata.name not in times:
                times[pod.metadata.name] = time.monotonic()
                if len(times) == len(wanted):
                    break
    return list(times.values())
