"""One fleet of one size: made, found by an operator that knows nothing, found again, idle, and changed all the time.

On a control plane of its own with nothing but etcd and the API server in it.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hack.bench.operator import fleet
from hack.bench.operator.api import Api
from hack.bench.operator.counts import Cost, OperatorRequests, metric, peak_rss_mib, rss_mib
from hack.bench.operator.generator import Command, Report
from hack.bench.operator.observer import NodeObserver
from hack.bench.operator.takeover import Pair
from hack.cluster.chart import install_chart
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.local.stack import Program, operator_program
from hack.cluster.processes.processes import reserved_ports, tied_to_us

RATE = 50.0
_COLD_SECONDS = 600.0
_SETTLED_SECONDS = 1200.0
# What piled up while a machine was too slow for the changes.
_CAUGHT_UP_SECONDS = 300.0
_QUIET_SECONDS = 3.0
_POLLS = "nodedevice_operator_reconcile_duration_seconds_count"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What one fleet showed. Seconds, MiB; latencies are from the sending of a change.

    cold, restart: from the start of the process until every Node is right, with nothing and with all of it there already.
    settled: until nothing is written any more. shown: until a plain watch shows the change; own: from
    then until the Node shows it, less than nothing where the operator was faster than that watch. bare: a write of a Node until a
    watch shows it, the operator having no part in it. superseded: changes that no Node showed before the next one of the same
    resource; they are in no list. *_cores: by process, and of the whole machine. crashes, clean_ends: from the end of the leader
    until a Node shows a change that was sent right after it.
    """

    nodes: int
    made_seconds: float
    cold_seconds: float
    settled_seconds: float
    settled_writes: Mapping[str, int]
    restart_seconds: float
    restart_writes: Mapping[str, int]
    idle_writes: Mapping[str, int]
    idle_cores: Mapping[str, float]
    superseded: int
    changed: list[float]
    shown: list[float]
    own: list[float]
    bare: list[float]
    change_writes: Mapping[str, int]
    change_cpu_seconds: float
    change_cores: Mapping[str, float]
    rss_mib: float
    peak_rss_mib: float
    crashes: list[float]
    clean_ends: list[float]


async def measure(nodes: int, seconds: float, folder: Path, progress: Progress) -> Measured:
    """All of it with so many Nodes. seconds: of changes; half of it without any."""
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane, reserved_ports(2) as ports:
        install_chart(control_plane)
        control_plane.stop_controllers()
        operator, other = (operator_program(control_plane, folder / str(port), port) for port in ports)
        async with AsyncExitStack() as opened:
            api = await opened.enter_async_context(Api(control_plane.admin_kubeconfig))
            generator = await opened.enter_async_context(_generator(control_plane))
            progress(f"{nodes} nodes: making them")
            made = await generator.ask(Command("make", nodes=nodes))
            pair = Pair(operator, other, generator.ask)
            opened.callback(pair.end)
            observer = await opened.enter_async_context(NodeObserver(api, pair.verify))
            run = _Run(nodes, control_plane, operator, pair, generator, observer, progress)
            return await run.measure(made, seconds)


class _Generator:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def ask(self, command: Command) -> Report:
        """Have it do that, and wait until it is done. Raises EOFError when it ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise EOFError("the generator has ended; its output is above")
        return msgspec.json.decode(line, type=Report)


@asynccontextmanager
async def _generator(control_plane: ControlPlane) -> AsyncIterator[_Generator]:
    command = [sys.executable, "-m", "hack.bench.operator.generator", str(control_plane.admin_kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *tied_to_us(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        # a report of a minute of changes is one line
        limit=64 * 2**20,
    )
    try:
        yield _Generator(process)
    finally:
        process.kill()
        await process.wait()


class _Run:
    def __init__(
        self,
        nodes: int,
        control_plane: ControlPlane,
        operator: Program,
        pair: Pair,
        generator: _Generator,
        observer: NodeObserver,
        progress: Progress,
    ) -> None:
        self._nodes = nodes
        self._operator = operator
        self._pair = pair
        self._generator = generator
        self._observer = observer
        self._progress = progress
        self._control_plane = control_plane
        self._requests = OperatorRequests(control_plane.audit_log)

    async def measure(self, made: Report, seconds: float) -> Measured:
        wanted = {
            (fleet.node_name(number), resource): fleet.advertised(is_broken=False)
            for number in range(self._nodes)
            for resource in fleet.RESOURCES
        }
        began = self._start()
        cold = await self._observer.wait_all(wanted, _COLD_SECONDS) - began
        self._report(f"all capacity right after {cold:.1f} s")
        settled_writes = await self._settle()
        settled = time.monotonic() - began - _QUIET_SECONDS
        self._report(f"all written after {settled:.1f} s")
        peak = peak_rss_mib(self._pid)
        self._operator.process.kill()
        self._requests.take_writes()
        restart = await self._until_judged()
        restart_writes = await self._settle()
        self._report(f"all judged after {restart:.1f} s")
        cost = self._cost()
        await asyncio.sleep(seconds / 2)
        idle_writes, idle_cores = self._requests.take_writes(), cost.cores()
        self._report(f"{RATE:.0f} changes a second for {seconds:.0f} s")
        cost = self._cost()
        report = await self._generator.ask(Command("change", seconds=seconds, rate=RATE))
        changed = await self._observer.wait_changes(report.changes, _CAUGHT_UP_SECONDS)
        bare = await self._observer.wait_changes(report.bare, _CAUGHT_UP_SECONDS)
        cost_cores, cost_seconds = cost.cores(), cost.seconds()["operator"]
        change_writes = await self._settle()
        rss, peak = rss_mib(self._pid), max(peak, peak_rss_mib(self._pid))
        self._report("ending the leader, again and again")
        return Measured(
            nodes=self._nodes,
            made_seconds=made.seconds,
            cold_seconds=cold,
            settled_seconds=settled,
            settled_writes=settled_writes,
            restart_seconds=restart,
            restart_writes=restart_writes,
            idle_writes=idle_writes,
            idle_cores=idle_cores,
            superseded=changed.count(None),
            changed=[seconds for seconds in changed if seconds is not None],
            shown=[change.shown_at - change.sent_at for change in report.changes if change.shown_at],
            own=[
                seconds - (change.shown_at - change.sent_at)
                for change, seconds in zip(report.changes, changed, strict=True)
                if seconds is not None and change.shown_at
            ],
            bare=[seconds for seconds in bare if seconds is not None],
            change_writes=change_writes,
            change_cpu_seconds=cost_seconds,
            change_cores=cost_cores,
            rss_mib=rss,
            peak_rss_mib=peak,
            crashes=await self._pair.crashes(self._observer),
            clean_ends=await self._pair.clean_ends(self._observer),
        )

    def _report(self, line: str) -> None:
        self._progress(f"{self._nodes} nodes: {line}; operator {rss_mib(self._pid):.0f} MiB")

    @property
    def _pid(self) -> int:
        pid = self._operator.process.pid
        assert pid is not None, self._operator.process.failure("has ended")
        return pid

    def _start(self) -> float:
        self._operator.process.start()
        return time.monotonic()

    def _cost(self) -> Cost:
        pids = self._control_plane.pids()
        chosen = {"API server": pids["kube-apiserver"], "etcd": pids["etcd"], "generator": self._generator.pid}
        chosen["observer"] = os.getpid()
        return Cost({"operator": self._pid, **chosen})

    async def _until_judged(self) -> float:
        """Start it; seconds until it has seen everything and reconciled every Node."""
        began = self._start()
        deadline = began + _COLD_SECONDS
        while not (self._operator.is_ready() and metric(self._operator.address, _POLLS) >= self._nodes):
            self._operator.process.verify_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator has not reconciled all Nodes after {_COLD_SECONDS:.0f} s")
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def _settle(self) -> Counter[str]:
        """Wait until the operator writes nothing for a while; what it wrote since it was last asked."""
        writes, deadline, quiet_since = Counter[str](), time.monotonic() + _SETTLED_SECONDS, time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_SECONDS:
            await asyncio.sleep(0.25)
            more = self._requests.take_writes()
            if more:
                quiet_since = time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the operator still writes after {_SETTLED_SECONDS:.0f} s: {dict(more)}")
            writes += more
        return writes
