"""`make bench-configs`: the API server's cost of every agent's watch of NodeDeviceConfigs, and the delay until all see a
change.

BENCH_NODES: number of agents, 5,000. Each has two watches with a connection of its own, like a real agent: all
NodeDeviceConfigs, and its own Node without spec and status. Only the watches are simulated; the API server, its rules
and its certificates are real.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from nodedevice_api import names

from hack.bench.operator import fleet
from hack.bench.operator.api import Api, Refused
from hack.bench.operator.counts import Cost, rss_mib
from hack.bench.results import Result, judged, publish
from hack.bench.running import bench_folder, show_progress
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ClusterError

_OUT = Path(__file__).parents[2] / "build" / "bench-configs.json"
_CONFIGS = f"/apis/{names.GROUP}/{names.VERSION}/{names.NODE_DEVICE_CONFIGS}"
_NODES = "/api/v1/nodes"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_API_SERVER = "kube-apiserver"
_CHANGES = 10
_IDLE_SECONDS = 30.0
_SETTLED_SECONDS = 10.0
# connections that are opened in parallel
_AT_ONCE = 50

Progress = Callable[[str], None]


class _Metadata(msgspec.Struct):
    name: str = ""
    generation: int = 0


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: _Object


class Agents:
    """The watches of a number of agents. until_seen(): waits until each of them has that generation of the
    configuration.
    """

    def __init__(self, api: Api, count: int) -> None:
        self._api = api
        self._count = count
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._seen: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, generation: int) -> None:
        """Returns after every watch got its response."""
        self._tasks = [asyncio.create_task(self._watch(_CONFIGS, {}, number)) for number in range(self._count)]
        self._tasks += [
            asyncio.create_task(
                self._watch(_NODES, {"fieldSelector": f"metadata.name={fleet.node_name(number)}"}, None)
            )
            for number in range(self._count)
        ]
        await self.until_seen(generation)
        await asyncio.sleep(_SETTLED_SECONDS)

    async def until_seen(self, generation: int) -> None:
        """Raises the error that ended a watch."""
        while sum(seen >= generation for seen in self._seen.values()) < self._count:
            for task in self._tasks:
                if task.done():
                    task.result()
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, path: str, query: dict[str, str], number: int | None) -> None:
        events = self._api.watch(path, _Event, query, accept=_METADATA if number is None else "")
        async with self._slots:
            event = await anext(events)
        while True:
            if number is not None:
                self._seen[number] = max(self._seen.get(number, 0), event.object.metadata.generation)
                self._changed.set()
            event = await anext(events)


async def measure(count: int, folder: Path, progress: Progress) -> dict[str, Result]:
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane:
        install_chart(control_plane)
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig) as api:
            progress(f"{count} Nodes")
            await asyncio.gather(*(api.post(_NODES, fleet.node(fleet.node_name(n)), "bench") for n in range(count)))
            await api.post(_CONFIGS, _config(0), "bench")
            return await _with_agents(api, count, control_plane.pids()[_API_SERVER], progress)


async def _with_agents(api: Api, count: int, api_server: int, progress: Progress) -> dict[str, Result]:
    before_mib, before_cores = rss_mib(api_server), await _idle_cores(api_server)
    agents = Agents(api, count)
    progress(f"{count} agents begin to watch")
    cost = Cost({_API_SERVER: api_server})
    await agents.start(1)
    begin_seconds = cost.seconds()[_API_SERVER]
    progress("watching while nothing changes")
    idle_cores = await _idle_cores(api_server) - before_cores
    mib = rss_mib(api_server) - before_mib
    progress("changing the configuration")
    known, cpu = [], []
    for change in range(1, _CHANGES + 1):
        cost, began = Cost({_API_SERVER: api_server}), time.monotonic()
        await api.merge(f"{_CONFIGS}/{_NAME}", {"spec": _config(change)["spec"]}, "bench")
        await agents.until_seen(change + 1)
        known.append(time.monotonic() - began)
        cpu.append(cost.seconds()[_API_SERVER])
    await agents.stop()
    single = {"configs_memory": (mib * 1024 / count, "KiB", 200.0), "configs_start_cpu": (begin_seconds, "s", 60.0)}
    single["configs_idle_cpu"] = (100 * max(0.0, idle_cores), "%", 25.0)
    return {
        **{name: judged(value, value, unit, goal, 1) for name, (value, unit, goal) in single.items()},
        "configs_known": judged(_median(known), max(known), "s", 1.0, len(known)),
        "configs_change_cpu": judged(_median(cpu), max(cpu), "s", 2.0, len(cpu)),
    }


async def _idle_cores(pid: int) -> float:
    cost = Cost({_API_SERVER: pid})
    await asyncio.sleep(_IDLE_SECONDS)
    return cost.cores()[_API_SERVER]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


_NAME = "everywhere"


def _config(change: int) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.NODE_DEVICE_CONFIG,
        "metadata": {"name": _NAME},
        "spec": {"plugins": {"simulated": [{"resourceName": "example.com/gpu", "count": change + 1}]}},
    }


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        count = int(os.environ.get("BENCH_NODES", "5000"))
    except ValueError:
        print("BENCH_NODES is a number of agents, such as 5000", file=sys.stderr)
        return 2
    try:
        with bench_folder() as folder:
            results = asyncio.run(measure(count, folder, show_progress))
    except (ClusterError, Refused) as error:
        print(f"bench-configs: {error}", file=sys.stderr)
        return 1
    publish(results, _OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
