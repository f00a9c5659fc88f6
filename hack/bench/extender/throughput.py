"""Pods a second of the same kube-scheduler with and without the extender, in turn: pods that all wait already when it starts."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil
from nodedevice_operator.objects.bound_pod import BoundPodSchema

from hack.bench.extender import fleet
from hack.bench.operator.api import Api
from hack.bench.results import PER_SECOND, Result, judged
from hack.scheduling.cluster import ALONE, EXTENDED, extenders, gpu_cluster, scheduler_alone, scheduler_beside
from hack.scheduling.node_model import NodeModel
from tests.cluster.control_plane.control_plane import ControlPlane

_NODES: Final = 200
_PODS: Final = 1000
# the rates differ by the moment: other work of the machine, and what the API server has left to do of the round before
_ROUNDS: Final = 3
# share of the plain rate that the extender must reach
_LEAST: Final = 0.6
_UNITS: Final = 20
_PODS_PATH: Final = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods"
# the first and last of them are bound while the scheduler starts and ends
_EDGE: Final = _PODS // 20
_MOST_SECONDS: Final = 300.0

Progress = Callable[[str], None]


class _Event(msgspec.Struct):
    type: str
    object: BoundPodSchema


@dataclass(frozen=True)
class _Bound:
    """rate: pods bound per second. cpu_ms: CPU time of API server, etcd, scheduler and extender per pod."""

    rate: float
    cpu_ms: float


async def measure(folder: Path, progress: Progress) -> dict[str, Result]:
    """Both rates, and the cost of a pod with and without the extender at the same pace."""
    plain: list[_Bound] = []
    extended: list[_Bound] = []
    paced: list[_Bound] = []
    with gpu_cluster(folder / "throughput", _NODES, progress) as (control_plane, nodes):
        # kubelets would need as much of this machine, and more of it while pods are bound slowly
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig) as api:
            for node in nodes:
                await fleet.publish(api, NodeModel(node))
            for turn in range(1, _ROUNDS + 1):
                plain.append(await _bind_all(api, ALONE, f"plain-{turn}", _alone(control_plane, folder)))
                with extenders(control_plane, folder, 1) as found:
                    beside = scheduler_beside(control_plane, folder, found)
                    extended.append(await _bind_all(api, EXTENDED, f"extended-{turn}", beside))
                alone = _alone(control_plane, folder, extended[-1].rate)
                paced.append(await _bind_all(api, ALONE, f"paced-{turn}", alone))
                shown = (
                    f"{of.rate:.0f} pods a second, {of.cpu_ms:.1f} ms each"
                    for of in (plain[-1], extended[-1], paced[-1])
                )
                progress("{}: without the extender {}; with it {}; without it at that pace {}".format(turn, *shown))
    return _results(plain, extended, paced)


def _results(plain: Sequence[_Bound], extended: Sequence[_Bound], paced: Sequence[_Bound]) -> dict[str, Result]:
    rates = {"with": [of.rate for of in extended], "without": [of.rate for of in plain]}
    slower = [alone / beside for alone, beside in zip(rates["without"], rates["with"], strict=True)]
    dearer = [beside.cpu_ms / alone.cpu_ms for beside, alone in zip(extended, paced, strict=True)]
    count, most = _ROUNDS * _PODS, 1 / _LEAST
    found = {
        "pods_with_extender": judged(statistics.median(rates["with"]), min(rates["with"]), PER_SECOND, 100, count),
        # no goal: for comparison only
        "pods_without_extender": judged(
            statistics.median(rates["without"]), min(rates["without"]), PER_SECOND, 0, count
        ),
    }
    ratios = {"pods_without_over_with": slower, "pods_cpu_with_over_without": dearer}
    return found | {name: judged(statistics.median(of), max(of), "ratio", most, _ROUNDS) for name, of in ratios.items()}


@asynccontextmanager
async def _alone(control_plane: ControlPlane, folder: Path, paced: float | None = None) -> AsyncIterator[str]:
    with scheduler_alone(control_plane, folder, paced) as name:
        yield name


async def _bind_all(api: Api, scheduler: str, prefix: str, started: AbstractAsyncContextManager[str]) -> _Bound:
    """Bind pods until a watch shows all of them bound, then delete them.

    prefix: of their names, unique per call: a late bind must not hit a pod of the next call.
    """
    names = [f"{prefix}-{number}" for number in range(_PODS)]
    bodies = (fleet.pod(name, _UNITS, scheduler=scheduler) for name in names)
    await asyncio.gather(*(fleet.create_pod(api, body) for body in bodies))
    times = asyncio.create_task(_bind_times(api, frozenset(names)))
    async with started:
        before = _cpu_seconds()
        bound = (await asyncio.wait_for(times, _MOST_SECONDS))[_EDGE:-_EDGE]
        cpu_seconds = _cpu_seconds() - before
    await asyncio.gather(*(api.delete(f"{_PODS_PATH}/{name}") for name in names))
    return _Bound((len(bound) - 1) / (bound[-1] - bound[0]), 1000 * cpu_seconds / _PODS)


def _cpu_seconds() -> float:
    """CPU time of this process's running children: control plane, scheduler, extender."""
    found = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            found += times.user + times.system
    return found


async def _bind_times(api: Api, wanted: frozenset[str]) -> list[float]:
    """Time at which a watch showed each of them bound. The API server ends a watch that reads too slowly: a new watch
    continues.
    """
    times: dict[str, float] = {}
    while len(times) < len(wanted):
        async for event in api.watch(_PODS_PATH, _Event, {}):
            pod = event.object
            if pod.metadata.name in wanted and pod.spec.node_name and pod.metadata.name not in times:
                times[pod.metadata.name] = time.monotonic()
                if len(times) == len(wanted):
                    break
    return list(times.values())
