"""`make bench-token`: one node's token writes 20,000 NodeDevices; measures the effect on the capacity of other nodes.

BENCH_NODES: the others, 100. BENCH_OBJECTS: number of NodeDevices. The same changes are measured before and during
the writes.
"""

import asyncio
import itertools
import os
import signal
import statistics
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from nodedevice_api import names
from nodedevice_operator.objects.meta import PartialObject

from hack.bench.operator import fleet
from hack.bench.operator.api import Api
from hack.bench.operator.counts import peak_rss_mib
from hack.bench.operator.generator import NODE_DEVICES, NODES, Command
from hack.bench.operator.generator_process import GeneratorProcess, generator_process
from hack.bench.operator.observer import NodeObserver
from hack.bench.results import Result, judged, publishing, result, worst
from hack.bench.running import bench_folder, show_progress
from tests.cluster import agent_objects
from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import operator_program
from tests.cluster.processes.processes import reserved_ports

_OUT = Path(__file__).parents[3] / "build" / "bench-token.json"
_USUAL = {"BENCH_NODES": "100", "BENCH_OBJECTS": "20000"}
# the first of the fleet is the token's own
_MAD = 0
_IN_FLIGHT = 8
_RATE = 5.0
_ROUND_SECONDS = 10.0
_ROUNDS = 3
_READY_SECONDS = 120.0
_CAUGHT_UP_SECONDS = 120.0
_MORE_P50, _MORE_P99 = 0.1, 0.5
_MOST_MIB = 256

Progress = Callable[[str], None]


@dataclass
class _Flips:
    """Seconds until a Node of the others shows a change, and seconds of bare writes at the same time."""

    changed: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


async def measure(results: dict[str, Result], nodes: int, objects: int, folder: Path, progress: Progress) -> None:
    """Fills `results`, also if it is interrupted. nodes: of others."""
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane, reserved_ports(1) as (port,):
        install_chart(control_plane)
        control_plane.stop_controllers()
        operator = operator_program(control_plane, folder, port)
        async with AsyncExitStack() as opened:
            api = await opened.enter_async_context(Api(control_plane.admin_kubeconfig))
            generator = await opened.enter_async_context(generator_process(control_plane))
            progress(f"making {nodes} nodes and one")
            await generator.ask(Command("make", nodes=nodes + 1))
            opened.callback(operator.process.kill)
            operator.process.start()
            observer = await opened.enter_async_context(NodeObserver(api, operator.process.verify_alive))
            wanted = {
                (fleet.node_name(number), resource): fleet.DEVICES
                for number, resource in itertools.product(range(nodes + 1), fleet.RESOURCES)
            }
            await observer.wait_all(wanted, _READY_SECONDS)
            progress("changes without it")
            without, beside = _Flips(), _Flips()
            for _ in range(_ROUNDS):
                await _round(generator, observer, without)
            found = msgspec.json.decode(await api.get(f"{NODES}/{fleet.node_name(_MAD)}"), type=PartialObject)
            results |= {"token_flip_without": _seconds(without.changed), "token_bare_without": _seconds(without.bare)}
            mad = asyncio.create_task(_write(control_plane, folder, found.metadata.uid, objects, progress))
            while not mad.done():
                await _round(generator, observer, beside)
                results |= _beside(without, beside)
                if operator.process.pid is not None:
                    peak = peak_rss_mib(operator.process.pid)
                    results["token_operator_rss"] = judged(peak, peak, "MiB", _MOST_MIB, 1)
            await mad


async def _round(generator: GeneratorProcess, observer: NodeObserver, flips: _Flips) -> None:
    report = await generator.ask(Command("change", seconds=_ROUND_SECONDS, rate=_RATE))
    others = [change for change in report.changes if change.node != fleet.node_name(_MAD)]
    for changes, into in ((others, flips.changed), (report.bare, flips.bare)):
        found = await observer.wait_changes(changes, _CAUGHT_UP_SECONDS)
        into += [seconds for seconds in found if seconds is not None]


async def _write(control_plane: ControlPlane, folder: Path, uid: str, objects: int, progress: Progress) -> None:
    """Write with the token of the agent of its node, as fast as the API server accepts. uid: the Node's."""
    node = fleet.node_name(_MAD)
    home = folder / "token"
    home.mkdir(mode=0o700)
    kubeconfig = control_plane.service_account_kubeconfig(
        SYSTEM_NAMESPACE, "nodedevice-agent", home / "kubeconfig", node_name=node
    )
    numbers = iter(range(objects))
    async with Api(kubeconfig, _IN_FLIGHT) as api:

        async def work() -> None:
            for number in numbers:
                resource = f"mad.example.com/r{number:05}"
                body = agent_objects.node_device(node, resource, uid)
                path = f"{NODE_DEVICES}/{body['metadata']['name']}"
                await api.apply(path, body, names.AGENT_FIELD_MANAGER)
                status = fleet.node_device_status(node, resource, {}, is_broken=bool(number % 2), holders=0)
                await api.apply(f"{path}/status", status, names.AGENT_FIELD_MANAGER)
                if number % 1000 == 0:
                    progress(f"{number} of {objects} objects")

        await asyncio.gather(*(work() for _ in range(_IN_FLIGHT)))


def _seconds(measured: list[float]) -> Result:
    """The result without a goal, for comparison."""
    return result(measured, "s", 60)


def _beside(without: _Flips, beside: _Flips) -> dict[str, Result]:
    more = statistics.median(beside.changed) - statistics.median(without.changed)
    more_p99 = worst(beside.changed) - worst(without.changed)
    count = len(beside.changed)
    return {
        "token_flip_beside": _seconds(beside.changed),
        "token_bare_beside": _seconds(beside.bare),
        "token_flip_more": judged(more, more, "s", _MORE_P50, count),
        "token_flip_more_p99": judged(more_p99, more_p99, "s", _MORE_P99, count),
    }


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = {name: os.environ.get(name) or usual for name, usual in _USUAL.items()}
    try:
        nodes, objects = map(int, given.values())
    except ValueError as exc:
        show_progress(f"{given}: {exc}; give numbers, as in BENCH_NODES=100 BENCH_OBJECTS=20000")
        return 2
    with bench_folder() as folder, publishing(_OUT) as results:
        asyncio.run(measure(results, nodes, objects, folder, show_progress))
    return 0


if __name__ == "__main__":
    sys.exit(main())
