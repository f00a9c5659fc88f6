"""Measures one fleet of one size: created, found by a new operator, found again, idle, and under constant change.

Uses a control plane of its own with only etcd and the API server.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from hack.bench.operator import fleet
from hack.bench.operator.api import Api
from hack.bench.operator.counts import (
    Cost,
    OperatorRequests,
    is_leader_without_work,
    metric,
    peak_rss_mib,
    rss_mib,
)
from hack.bench.operator.generator import Command, Report
from hack.bench.operator.generator_process import GeneratorProcess, generator_process
from hack.bench.operator.measured import Changes, Idle, Measured, Settled, Start
from hack.bench.operator.observer import NodeObserver
from hack.bench.operator.settle import settled
from hack.bench.operator.takeover import Pair
from hack.bench.results import worst
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, operator_program
from tests.cluster.processes.processes import reserved_ports

RATE = 50.0
_COLD_SECONDS = 600.0
# Backlog of a machine that is too slow for the changes.
_CAUGHT_UP_SECONDS = 300.0
_POLLS = "nodedevice_operator_reconcile_duration_seconds_count"

Progress = Callable[[str], None]


async def measure(measured: Measured, seconds: float, folder: Path, progress: Progress) -> None:
    """Run all stages with this number of Nodes. seconds: of changes; the idle stage takes half of it.

    Raises the error that ends a stage early: TimeoutError, EOFError, Refused, ClusterError, OSError.
    """
    nodes = measured.nodes
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane, reserved_ports(2) as ports:
        install_chart(control_plane)
        control_plane.stop_controllers()
        operator, other = (operator_program(control_plane, folder / str(port), port) for port in ports)
        async with AsyncExitStack() as opened:
            api = await opened.enter_async_context(Api(control_plane.admin_kubeconfig))
            generator = await opened.enter_async_context(generator_process(control_plane))
            progress(f"{nodes} nodes: making them")
            measured.made_seconds = (await generator.ask(Command("make", nodes=nodes))).seconds
            pair = Pair(operator, other, generator.ask)
            opened.callback(pair.end)
            observer = await opened.enter_async_context(NodeObserver(api, pair.verify))
            await _Run(measured, control_plane, operator, pair, generator, observer, progress).measure(seconds)


class _Run:
    def __init__(
        self,
        measured: Measured,
        control_plane: ControlPlane,
        operator: Program,
        pair: Pair,
        generator: GeneratorProcess,
        observer: NodeObserver,
        progress: Progress,
    ) -> None:
        self._measured = measured
        self._nodes = measured.nodes
        self._operator = operator
        self._pair = pair
        self._generator = generator
        self._observer = observer
        self._progress = progress
        self._control_plane = control_plane
        self._requests = OperatorRequests(control_plane.audit_log)

    async def measure(self, seconds: float) -> None:
        await self._cold()
        await self._restart()
        await self._idle(seconds / 2)
        await self._changes(seconds)
        self._report("ending the leader, again and again")
        async for waited in self._pair.crashes(self._observer):
            self._measured.crashes.append(waited)
            self._progress(f"{self._nodes} nodes: {waited:.2f} s after a crash")
        async for waited in self._pair.clean_ends(self._observer):
            self._measured.clean_ends.append(waited)
            self._progress(f"{self._nodes} nodes: {waited:.2f} s after a clean end")

    async def _cold(self) -> None:
        wanted = {
            (fleet.node_name(number), resource): fleet.advertised(is_broken=False)
            for number in range(self._nodes)
            for resource in fleet.RESOURCES
        }
        bare = (await self._generator.ask(Command("bare", nodes=self._nodes))).seconds
        self._measured.bare_seconds = bare
        self._progress(f"{self._nodes} nodes: a bare write of each takes {bare:.1f} s")
        began = self._start()
        self._measured.cold = cold = Start(await self._observer.wait_all(wanted, _COLD_SECONDS) - began)
        self._report(f"all capacity right after {cold.seconds:.1f} s")
        self._measured.cold_settled = settled = await self._settle(began)
        self._report(f"all written after {settled.seconds:.1f} s")
        self._keep_peak()

    async def _restart(self) -> None:
        self._operator.process.kill()
        self._requests.take_writes()
        began = self._start()
        self._measured.restart = restart = Start(await self._until_judged(began))
        self._report(f"all judged after {restart.seconds:.1f} s")
        self._measured.restart_settled = await self._settle(began)

    async def _idle(self, seconds: float) -> None:
        cost = self._cost()
        await asyncio.sleep(seconds)
        self._measured.idle = Idle(self._requests.take_writes(), cost.cores())

    async def _changes(self, seconds: float) -> None:
        self._report(f"{RATE:.0f} changes a second for {seconds:.0f} s")
        began, cost = time.monotonic(), self._cost()
        report = await self._generator.ask(Command("change", seconds=seconds, rate=RATE))
        changed = await self._observer.wait_changes(report.changes, _CAUGHT_UP_SECONDS)
        bare = await self._observer.wait_changes(report.bare, _CAUGHT_UP_SECONDS)
        self._measured.changes = _changes(report, changed, bare, cost)
        self._measured.rss_mib = rss_mib(self._pid)
        self._keep_peak()
        self._progress_of(self._measured.changes)
        self._measured.changes_settled = await self._settle(began)
        self._measured.rss_mib = rss_mib(self._pid)
        self._keep_peak()

    def _progress_of(self, changes: Changes) -> None:
        if changes.changed and changes.bare:
            changed, bare = (
                f"p50 {statistics.median(of):.3f} s, p99 {worst(of):.3f} s" for of in (changes.changed, changes.bare)
            )
            self._report(f"a change takes {changed}; a bare write {bare}")

    def _keep_peak(self) -> None:
        self._measured.peak_rss_mib = max(self._measured.peak_rss_mib, peak_rss_mib(self._pid))

    def _report(self, line: str) -> None:
        self._progress(f"{self._nodes} nodes: {line}; operator {rss_mib(self._pid):.0f} MiB")

    @property
    def _pid(self) -> int:
        pid = self._operator.process.pid
        if pid is None:
            raise self._operator.process.failure("has ended")
        return pid

    def _start(self) -> float:
        self._operator.process.start()
        return time.monotonic()

    def _cost(self) -> Cost:
        pids = self._control_plane.pids()
        chosen = {"API server": pids["kube-apiserver"], "etcd": pids["etcd"], "generator": self._generator.pid}
        chosen["observer"] = os.getpid()
        return Cost({"operator": self._pid, **chosen})

    async def _until_judged(self, began: float) -> float:
        """Seconds from its start until it has seen everything and reconciled every Node."""
        deadline = began + _COLD_SECONDS
        while not (self._operator.is_ready() and metric(self._operator.address, _POLLS) >= self._nodes):
            self._operator.process.verify_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator has not reconciled all Nodes after {_COLD_SECONDS:.0f} s")
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def _settle(self, began: float) -> Settled:
        return await settled(self._requests.take_writes, lambda: is_leader_without_work(self._operator.address), began)


def _changes(report: Report, changed: list[float | None], bare: list[float | None], cost: Cost) -> Changes:
    shown = [change.shown_at - change.sent_at if change.shown_at else None for change in report.changes]
    return Changes(
        superseded=changed.count(None),
        changed=[seconds for seconds in changed if seconds is not None],
        shown=[seconds for seconds in shown if seconds is not None],
        own=[
            until_node - until_shown
            for until_node, until_shown in zip(changed, shown, strict=True)
            if until_node is not None and until_shown is not None
        ],
        bare=[seconds for seconds in bare if seconds is not None],
        cpu_seconds=cost.seconds()["operator"],
        cores=cost.cores(),
    )
