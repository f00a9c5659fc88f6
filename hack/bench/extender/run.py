"""Measures the real extender with one fleet of one size: start, filter and prioritize, bind, and relist."""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.bench.extender import fleet
from hack.bench.extender.port import Port
from hack.bench.operator.api import Api
from hack.bench.operator.counts import peak_rss_mib, rss_mib
from hack.bench.results import Result, judged, result, worst
from hack.scheduling.node_model import RESOURCE
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, extender_program
from tests.cluster.processes.processes import reserved_ports

_FILTERS: Final = 200
_BINDS: Final = 100
_CALM_SECONDS: Final = 5.0
_OUTAGE_SECONDS: Final = 20.0
_P50_MS: Final = {500: 2.0}
_MOST_P50_MS: Final = 8.0
_MOST_P99_MS: Final = 30.0
_BIND_MORE_MS: Final = 3.0
_MOST_MIB: Final = 200.0
_IN_FLIGHT: Final = 64

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Site:
    nodes: list[str]
    api: Api
    extender: Program
    port: Port

    @property
    def pid(self) -> int:
        assert self.extender.process.pid is not None
        return self.extender.process.pid


async def measure(
    results: dict[str, Result], nodes: int, folder: Path, progress: Progress, pods: int = fleet.PODS
) -> None:
    """Run all steps with this number of nodes, and add the rows to `results`. pods: bound ones per node."""
    with ControlPlane.start(folder / f"cluster-{nodes}", lambda _: None) as control_plane, reserved_ports(2) as ports:
        install_chart(control_plane, {"scheduler": {"enabled": True, "managedResources": [RESOURCE]}})
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig, _IN_FLIGHT) as api:
            progress(f"{nodes} nodes: making {nodes * pods} pods")
            await fleet.make(api, nodes, pods)
            extender = extender_program(control_plane, folder / f"x{nodes}", *ports)
            try:
                progress(f"{nodes} nodes: starting the extender")
                extender.start()
                port = Port(f"127.0.0.1:{ports[1]}")
                site = _Site(fleet.node_names(nodes), api, extender, port)
                await _measure(results, site, control_plane, progress, pods)
            finally:
                extender.process.kill()


async def _measure(
    results: dict[str, Result], site: _Site, control_plane: ControlPlane, progress: Progress, pods: int
) -> None:
    nodes = len(site.nodes)
    size = f"{nodes}x{pods}"
    await asyncio.sleep(_CALM_SECONDS)
    results[f"extender_rss_started_{size}"] = _memory(site)
    progress(f"{nodes} nodes: filter")
    results |= await _filters(site)
    progress(f"{nodes} nodes: bind")
    results |= await _binds(site)
    progress(f"{nodes} nodes: the API server ends and comes again")
    site.port.close()
    await asyncio.to_thread(_interrupt, control_plane, site)
    results[f"extender_rss_listed_again_{size}"] = _memory(site)


def _memory(site: _Site) -> Result:
    """Memory in RAM now; as its p99, the maximum since the process started, which is judged."""
    peak = peak_rss_mib(site.pid)
    held = rss_mib(site.pid)
    return Result(round(held, 1), round(peak, 1), "MiB", _MOST_MIB, peak <= _MOST_MIB, 1)


async def _filters(site: _Site) -> dict[str, Result]:
    nodes = len(site.nodes)
    return {
        f"filter_{nodes}": await _filter(site, "all-fit", fleet.SMALL, nodes),
        f"filter_most_fail_{nodes}": await _filter(site, "most-fail", fleet.BIG, _roomy(nodes)),
    }


async def _filter(site: _Site, name: str, units: int, fits: int) -> Result:
    """fits: number of nodes with room for the pod."""
    request, taken = {"Pod": await _pod(site, name, units), "NodeNames": site.nodes}, []
    for _ in range(_FILTERS):
        seconds, answer = site.port.call("filter", request)
        if len(answer["NodeNames"]) != fits or len(answer.get("FailedNodes") or ()) != len(site.nodes) - fits:
            raise RuntimeError(f"filter: {len(answer['NodeNames'])} nodes of {len(site.nodes)} fit, not {fits}")
        taken.append(1000 * seconds)
    p50, p99 = statistics.median(taken), worst(taken)
    goal = _P50_MS.get(len(site.nodes), _MOST_P50_MS)
    is_ok = p50 <= goal and p99 <= _MOST_P99_MS
    return Result(round(p50, 3), round(p99, 3), "ms", goal, is_ok, len(taken))


async def _binds(site: _Site) -> dict[str, Result]:
    """Seconds of binds by the extender and by this process, in turn."""
    ours, bare = [], []
    nodes = [name for number, name in enumerate(site.nodes) if fleet.has_room(number)]
    for number in range(_BINDS):
        node = nodes[number % len(nodes)]
        pod = await _pod(site, f"by-extender-{number}", 1)
        site.port.call("filter", {"Pod": pod, "NodeNames": [node]})
        meta = pod["metadata"]
        request = {"PodName": meta["name"], "PodNamespace": fleet.NAMESPACE, "PodUID": meta["uid"], "Node": node}
        seconds, answer = site.port.call("bind", request)
        if answer.get("Error"):
            raise RuntimeError(answer["Error"])
        ours.append(1000 * seconds)
        bare.append(1000 * await _bare_bind(site, f"bare-{number}", node))
    more = statistics.median(ours) - statistics.median(bare)
    count = len(site.nodes)
    return {
        f"bind_{count}": result(ours, "ms", statistics.median(bare) + _BIND_MORE_MS),
        f"bind_over_bare_{count}": judged(more, worst(ours) - worst(bare), "ms", _BIND_MORE_MS, _BINDS),
    }


async def _bare_bind(site: _Site, name: str, node: str) -> float:
    pod = await _pod(site, name, 1)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": fleet.NAMESPACE, "uid": pod["metadata"]["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    began = time.perf_counter()
    await site.api.post(f"/api/v1/namespaces/{fleet.NAMESPACE}/pods/{name}/binding", body, "bench")
    return time.perf_counter() - began


async def _pod(site: _Site, name: str, units: int) -> dict[str, Any]:
    """A pending pod, in the form that kube-scheduler sends."""
    body = fleet.pod(name, units)
    body["metadata"]["uid"] = await fleet.create_pod(site.api, body)
    return body


def _roomy(nodes: int) -> int:
    return sum(fleet.has_room(number) for number in range(nodes))


def _interrupt(control_plane: ControlPlane, site: _Site) -> None:
    """Stop the API server for longer than the extender's Lease: its watches and the new term list everything again."""
    control_plane.stop_apiserver()
    time.sleep(_OUTAGE_SECONDS)
    control_plane.start_apiserver()
    site.extender.process.wait_ready(site.extender.is_ready, 120)
    time.sleep(_CALM_SECONDS)
