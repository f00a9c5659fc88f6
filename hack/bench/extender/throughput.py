"""Pods per second, and CPU time per pod: the plain scheduler, the minimal extender and the product, in turn.

All pods wait already when a scheduler starts. A round measures each side once, so a ratio compares sides that ran
under the same conditions; a row is the median over the rounds.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from nodedevice_operator.objects.bound_pod import BoundPodSchema
from rich.console import Console
from rich.table import Table

from hack.bench.extender import cpu, fleet, minimal_extender
from hack.bench.operator.api import Api
from hack.bench.results import PER_SECOND, SHARE, Result, judged
from hack.scheduling.cluster import ALONE, EXTENDED, scheduler_alone, scheduler_beside
from hack.scheduling.node_model import RESOURCE
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import extender_program
from tests.cluster.processes.processes import reserved_ports

PLAIN: Final = "plain"
MINIMAL: Final = "minimal"
PRODUCT: Final = "extender"
BEFORE: Final = "before"
PODS: Final = 1000
ROUNDS: Final = 5
_UNITS: Final = 20
_PODS_PATH: Final = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods"
_EVENTS_PATH: Final = f"/api/v1/namespaces/{fleet.NAMESPACE}/events"
# part of the pods: the first and last of them are bound while the scheduler starts and ends
_EDGE: Final = 20
_READY_SECONDS: Final = 120.0
_MOST_SECONDS: Final = 600.0
_LEAST_OF_MINIMAL: Final = 0.8
_LEAST_OF_PLAIN: Final = 0.95
_MOST_CPU: Final = 1.5
# at least the old rate times this, if the old rate was below this part of the plain one
_FASTER: Final = 1.5
_SLOW: Final = 0.55

Progress = Callable[[str], None]
Started = Callable[[], AbstractContextManager[str]]


class _Event(msgspec.Struct):
    type: str
    object: BoundPodSchema


class _Regarding(msgspec.Struct):
    name: str = ""


class _Failed(msgspec.Struct):
    regarding: _Regarding = msgspec.field(name="involvedObject")
    message: str = ""


class _FailedList(msgspec.Struct):
    items: list[_Failed]


@dataclass(frozen=True)
class Bound:
    """rate: pods bound per second. cpu_ms: CPU time per pod, by program. failed: pods with a FailedScheduling Event."""

    rate: float
    cpu_ms: Mapping[str, float]
    failed: int

    @property
    def all_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())


@dataclass(frozen=True)
class Settings:
    """rounds: of each size. pods: bound by each side of a round. before: another tree's operator program, if any."""

    rounds: int = ROUNDS
    pods: int = PODS
    before: str = ""


async def measure(results: dict[str, Result], nodes: int, folder: Path, progress: Progress, settings: Settings) -> None:
    """Add the rows of this number of nodes."""
    minimal_extender.build(progress)
    rounds: list[dict[str, Bound]] = []
    with ControlPlane.start(folder / f"throughput-{nodes}", lambda _: None) as control_plane:
        install_chart(control_plane, {"scheduler": {"enabled": True, "managedResources": [RESOURCE]}})
        # they would play kubelets, on the same cores
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig) as api:
            progress(f"{nodes} nodes: creating them")
            await fleet.make_nodes(api, nodes)
            sides = _sides(control_plane, folder, settings.before)
            for turn in range(settings.rounds):
                rounds.append(await _round(api, nodes, turn, sides, settings.pods, progress))
    results |= rows(rounds, nodes)
    show(rounds, nodes)


async def _round(
    api: Api, nodes: int, turn: int, sides: Mapping[str, Started], pods: int, progress: Progress
) -> dict[str, Bound]:
    """Each round begins with another side."""
    first = turn % len(sides)
    bound = {}
    for side in (*list(sides)[first:], *list(sides)[:first]):
        scheduler = ALONE if side == PLAIN else EXTENDED
        bound[side] = of = await _bind_all(api, scheduler, f"{side}-{turn}", pods, sides[side])
        failed = f", {of.failed} failed" if of.failed else ""
        progress(f"{nodes} nodes, round {turn + 1}: {side} {of.rate:.0f} pods/s, {of.all_cpu_ms:.1f} ms each{failed}")
    return bound


def _sides(control_plane: ControlPlane, folder: Path, before: str) -> dict[str, Started]:
    """How each side is started."""
    found: dict[str, Started] = {
        PLAIN: lambda: scheduler_alone(control_plane, folder),
        MINIMAL: lambda: _minimal(control_plane, folder),
        PRODUCT: lambda: _product(control_plane, folder / PRODUCT),
    }
    return found | ({BEFORE: lambda: _product(control_plane, folder / BEFORE, before)} if before else {})


@contextmanager
def _minimal(control_plane: ControlPlane, folder: Path) -> Iterator[str]:
    with reserved_ports(1) as (port,):
        program = minimal_extender.minimal_program(control_plane, folder / MINIMAL, port)
        try:
            program.start()
            with scheduler_beside(control_plane, folder, program.address) as scheduler:
                yield scheduler
        finally:
            program.process.kill()


@contextmanager
def _product(control_plane: ControlPlane, folder: Path, operator: str = "") -> Iterator[str]:
    with reserved_ports(2) as (port, verbs):
        program = extender_program(control_plane, folder, port, verbs, operator)
        try:
            program.process.start()
            program.process.wait_ready(program.is_ready, _READY_SECONDS)
            with scheduler_beside(control_plane, folder.parent, f"127.0.0.1:{verbs}") as scheduler:
                yield scheduler
        finally:
            program.process.kill()


async def _bind_all(api: Api, scheduler: str, prefix: str, count: int, start: Started) -> Bound:
    """Bind pods until a watch shows all of them bound, then delete them.

    prefix: of their names, unique per call: a late bind must not hit a pod of the next call.
    """
    names = [f"{prefix}-{number}" for number in range(count)]
    bodies = (fleet.pod(name, _UNITS, scheduler=scheduler) for name in names)
    await asyncio.gather(*(fleet.create_pod(api, body) for body in bodies))
    watch = asyncio.create_task(_watch(api, frozenset(names)))
    async with _running(start()):
        bound = await asyncio.wait_for(watch, _MOST_SECONDS)
    failed = await _failed_pods(api, f"{prefix}-")
    await asyncio.gather(*(api.delete(f"{_PODS_PATH}/{name}") for name in names))
    return Bound(bound.rate, bound.cpu_ms, failed)


@asynccontextmanager
async def _running(started: AbstractContextManager[str]) -> AsyncIterator[None]:
    """Start and stop in a thread: the watch must not wait."""
    await asyncio.to_thread(started.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)


async def _watch(api: Api, wanted: frozenset[str]) -> Bound:
    """Rate and cost from the moment when a few of them are bound to the moment when only a few are left.

    The API server ends a watch that reads too slowly: a new watch continues.
    """
    seen: set[str] = set()
    edge = max(1, len(wanted) // _EDGE)
    began = ended = 0.0
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    while len(seen) < len(wanted):
        async for event in api.watch(_PODS_PATH, _Event, {"fieldSelector": "spec.nodeName!="}):
            name = event.object.metadata.name
            if name not in wanted or name in seen:
                continue
            seen.add(name)
            if len(seen) == edge:
                began, before = time.monotonic(), cpu.by_program()
            elif len(seen) == len(wanted) - edge:
                ended, after = time.monotonic(), cpu.by_program()
            if len(seen) == len(wanted):
                break
    pods = len(wanted) - 2 * edge
    spent = {program: 1000 * (after[program] - before[program]) / pods for program in cpu.PROGRAMS}
    return Bound(pods / (ended - began), spent, 0)


async def _failed_pods(api: Api, prefix: str) -> int:
    """Number of pods whose scheduling failed at least once, and was retried."""
    content = await api.get(_EVENTS_PATH, {"fieldSelector": "reason=FailedScheduling"})
    events = msgspec.json.decode(content, type=_FailedList).items
    return len({event.regarding.name for event in events if event.regarding.name.startswith(prefix)})


# -- results -----------------------------------------------------------------------------------------------------------


def rows(rounds: Sequence[Mapping[str, Bound]], nodes: int) -> dict[str, Result]:
    """The rows of these rounds. A ratio is the median of the rounds' own ratios."""
    sides = list(rounds[0])

    def rates(side: str, over: str = "") -> list[float]:
        return [of[side].rate / (of[over].rate if over else 1) for of in rounds]

    found = {f"pods_{side}_{nodes}": _least(rates(side), PER_SECOND, None) for side in sides}
    found[f"pods_minimal_over_plain_{nodes}"] = _least(rates(MINIMAL, PLAIN), SHARE, None)
    found[f"pods_extender_over_minimal_{nodes}"] = _least(rates(PRODUCT, MINIMAL), SHARE, _LEAST_OF_MINIMAL)
    found[f"pods_extender_over_plain_{nodes}"] = _least(rates(PRODUCT, PLAIN), SHARE, _LEAST_OF_PLAIN)
    if BEFORE in sides:
        was_slow = statistics.median(rates(BEFORE, PLAIN)) < _SLOW
        found[f"pods_before_over_plain_{nodes}"] = _least(rates(BEFORE, PLAIN), SHARE, None)
        found[f"pods_extender_over_before_{nodes}"] = _least(
            rates(PRODUCT, BEFORE), SHARE, _FASTER if was_slow else None
        )
    for side in sides:
        found[f"cpu_{side}_{nodes}"] = _most([of[side].all_cpu_ms for of in rounds], "ms", None)
    for side in sides[1:]:
        goal = _MOST_CPU if side == PRODUCT else None
        ratios = [of[side].all_cpu_ms / of[PLAIN].all_cpu_ms for of in rounds]
        found[f"cpu_{side}_over_plain_{nodes}"] = _most(ratios, "ratio", goal)
    for side in sides:
        for program in cpu.PROGRAMS[: -1 if side == PLAIN else None]:
            spent = [of[side].cpu_ms[program] for of in rounds]
            found[f"cpu_{side}_{program}_{nodes}"] = _most(spent, "ms", None)
    for side in sides[2:]:
        failed = [float(of[side].failed) for of in rounds]
        found[f"failed_{side}_{nodes}"] = _most(failed, "pods", 0 if side == PRODUCT else None)
    return found


def _least(measured: Sequence[float], unit: str, goal: float | None) -> Result:
    """The median, and as its p99 the smallest."""
    return _row(measured, min(measured), unit, goal)


def _most(measured: Sequence[float], unit: str, goal: float | None) -> Result:
    """The median, and as its p99 the largest."""
    return _row(measured, max(measured), unit, goal)


def _row(measured: Sequence[float], worst: float, unit: str, goal: float | None) -> Result:
    median = statistics.median(measured)
    if goal is None:
        return Result(round(median, 5), round(worst, 5), unit, None, True, len(measured))
    return judged(median, worst, unit, goal, len(measured))


def show(rounds: Sequence[Mapping[str, Bound]], nodes: int) -> None:
    """Print where the time of a pod goes, as medians of the rounds."""
    table = Table(title=f"{nodes} nodes: pods per second, and CPU ms per pod; medians of {len(rounds)} rounds")
    for column in ("side", "pods/s", "of plain", "CPU", *cpu.PROGRAMS):
        table.add_column(column, justify="left" if column == "side" else "right")
    for side in rounds[0]:
        bound = [of[side] for of in rounds]
        of_plain = statistics.median(of[side].rate / of[PLAIN].rate for of in rounds)
        spent = [statistics.median(of.cpu_ms[program] for of in bound) for program in cpu.PROGRAMS]
        rate = statistics.median(of.rate for of in bound)
        all_spent = statistics.median(of.all_cpu_ms for of in bound)
        table.add_row(side, f"{rate:.0f}", f"{of_plain:.2f}", *(f"{value:.1f}" for value in (all_spent, *spent)))
    Console(width=110).print(table)
