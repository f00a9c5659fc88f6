"""Measures the real extender with one fleet of one size: start, each verb, and relist."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.bench.extender import cpu, fleet
from hack.bench.extender.port import Port
from hack.bench.operator.api import Api
from hack.bench.operator.counts import peak_rss_mib, rss_mib
from hack.bench.results import Result, judged, result, worst
from hack.scheduling.node_model import RESOURCE
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, extender_program
from tests.cluster.processes.processes import reserved_ports

_REQUESTS: Final = 200
_WARM_UP: Final = 20
_BINDS: Final = 100
_CALM_SECONDS: Final = 5.0
_OUTAGE_SECONDS: Final = 20.0
_P50_MS: Final = 8.0
_P99_MS: Final = 30.0
_CPU_MS: Final = 4.0
_SHOWN_SECONDS: Final = 0.5
# Source: MaxExtenderPriority, k8s.io/kube-scheduler extender/v1/types.go.
_BEST: Final = 10
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
    results: dict[str, Result], nodes: int, folder: Path, progress: Progress, pods: int = fleet.PODS, before: str = ""
) -> None:
    """Run all steps with this number of nodes, and add the rows to `results`.

    pods: bound ones per node. before: another tree's operator program, whose verbs are measured as well.
    """
    with ControlPlane.start(folder / f"cluster-{nodes}", lambda _: None) as control_plane:
        install_chart(control_plane, {"scheduler": {"enabled": True, "managedResources": [RESOURCE]}})
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig, _IN_FLIGHT) as api:
            progress(f"{nodes} nodes: creating {nodes * pods} pods")
            await fleet.make(api, nodes, pods)
            if before:
                progress(f"{nodes} nodes: the verbs of the other tree")
                with _extender(control_plane, api, folder / f"b{nodes}", nodes, before) as site:
                    results |= {f"{name}_before": row for name, row in (await _verbs(site)).items()}
            progress(f"{nodes} nodes: starting the extender")
            with _extender(control_plane, api, folder / f"x{nodes}", nodes) as site:
                size = f"{nodes}x{pods}"
                await asyncio.sleep(_CALM_SECONDS)
                results[f"extender_rss_started_{size}"] = _memory(site)
                progress(f"{nodes} nodes: the verbs")
                results |= await _verbs(site)
                progress(f"{nodes} nodes: the API server ends and comes again")
                site.port.close()
                await asyncio.to_thread(_interrupt, control_plane, site)
                results[f"extender_rss_listed_again_{size}"] = _memory(site)


@contextmanager
def _extender(control_plane: ControlPlane, api: Api, folder: Path, nodes: int, operator: str = "") -> Iterator[_Site]:
    """An active extender."""
    with reserved_ports(2) as ports:
        extender = extender_program(control_plane, folder, ports[0], ports[1], operator)
        try:
            extender.start()
            yield _Site(fleet.node_names(nodes), api, extender, Port(f"127.0.0.1:{ports[1]}"))
        finally:
            extender.process.kill()


def _memory(site: _Site) -> Result:
    """Memory in RAM now; as its p99, the maximum since the process started, which is judged."""
    peak = peak_rss_mib(site.pid)
    held = rss_mib(site.pid)
    return Result(round(held, 1), round(peak, 1), "MiB", _MOST_MIB, peak <= _MOST_MIB, 1)


async def _verbs(site: _Site) -> dict[str, Result]:
    """Latency and CPU time of each verb."""
    roomy = [name for number, name in enumerate(site.nodes) if fleet.has_room(number)]
    plain = await _pod(site, "all-fit", fleet.SMALL)
    big = await _pod(site, "most-fail", fleet.BIG)
    soft = await _pod(site, "soft", fleet.SMALL, is_soft=True)
    # first: the others hold parts of a node for a while
    found = _filter(site, "filter_soft", soft, site.nodes)
    found |= _filter(site, "filter", plain, site.nodes)
    found |= _filter(site, "filter_most_fail", big, roomy)
    found |= _prioritize(site, soft)
    return found | await _binds(site)


def _filter(site: _Site, name: str, pod: dict[str, Any], fitting: Sequence[str]) -> dict[str, Result]:
    """fitting: the nodes with room for the pod. Of these, one is enough for a pod without preferences."""
    is_soft = "affinity" in pod["spec"]
    allowed = {len(fitting)} if is_soft else {1, len(fitting)}

    def verify(answer: Any) -> None:
        named = answer["NodeNames"]
        if len(named) not in allowed or not set(named) <= set(fitting):
            raise RuntimeError(f"{name}: {len(named)} nodes; of {len(site.nodes)}, {len(fitting)} fit")

    return _requests(site, name, "filter", {"Pod": pod, "NodeNames": site.nodes}, verify)


def _prioritize(site: _Site, pod: dict[str, Any]) -> dict[str, Result]:
    def verify(answer: Any) -> None:
        if len(answer) != len(site.nodes) or max(each["Score"] for each in answer) != _BEST:
            raise RuntimeError(f"prioritize: {len(answer)} scores for {len(site.nodes)} nodes: {answer[:3]}")

    return _requests(site, "prioritize", "prioritize", {"Pod": pod, "NodeNames": site.nodes}, verify)


def _requests(site: _Site, name: str, verb: str, body: Any, verify: Callable[[Any], None]) -> dict[str, Result]:
    """The same request several times. verify: raises RuntimeError for a wrong response."""
    # responses of a process that has just started are slower
    for _ in range(_WARM_UP):
        verify(site.port.call(verb, body)[1])
    taken = []
    before = cpu.seconds(site.pid)
    for _ in range(_REQUESTS):
        taken.append(1000 * site.port.call(verb, body)[0])
    spent = 1000 * (cpu.seconds(site.pid) - before) / _REQUESTS
    nodes = len(site.nodes)
    p50, p99 = statistics.median(taken), worst(taken)
    is_ok = p50 <= _P50_MS and p99 <= _P99_MS
    return {
        f"{name}_{nodes}": Result(round(p50, 3), round(p99, 3), "ms", _P50_MS, is_ok, len(taken)),
        f"{name}_cpu_{nodes}": judged(spent, spent, "ms", _CPU_MS, len(taken)),
    }


async def _binds(site: _Site) -> dict[str, Result]:
    """Seconds of binds by the extender and by this process, in turn; then CPU time of binds by the extender."""
    ours, bare = [], []
    for number in range(_BINDS):
        request = await _filtered(site, f"by-extender-{number}", number)
        ours.append(1000 * _bind(site, request))
        bare.append(1000 * await _bare_bind(site, f"bare-{number}", request["Node"]))
    requests = [await _filtered(site, f"counted-{number}", number) for number in range(_BINDS)]
    before = cpu.seconds(site.pid)
    for request in requests:
        _bind(site, request)
    # its watch shows the last ones
    await asyncio.sleep(_SHOWN_SECONDS)
    spent = 1000 * (cpu.seconds(site.pid) - before) / _BINDS
    more = statistics.median(ours) - statistics.median(bare)
    count = len(site.nodes)
    return {
        f"bind_{count}": result(ours, "ms", statistics.median(bare) + _BIND_MORE_MS),
        f"bind_cpu_{count}": Result(round(spent, 3), round(spent, 3), "ms", None, True, _BINDS),
        f"bind_over_bare_{count}": judged(more, worst(ours) - worst(bare), "ms", _BIND_MORE_MS, _BINDS),
    }


async def _filtered(site: _Site, name: str, number: int) -> dict[str, Any]:
    """The request to bind a new pod, after its filter. Nodes take turns."""
    nodes = [name for number, name in enumerate(site.nodes) if fleet.has_room(number)]
    node = nodes[number % len(nodes)]
    pod = await _pod(site, name, 1)
    site.port.call("filter", {"Pod": pod, "NodeNames": [node]})
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": fleet.NAMESPACE, "PodUID": meta["uid"], "Node": node}


def _bind(site: _Site, request: dict[str, Any]) -> float:
    """Seconds that it took. Raises RuntimeError."""
    seconds, answer = site.port.call("bind", request)
    if answer.get("Error"):
        raise RuntimeError(answer["Error"])
    return seconds


async def _bare_bind(site: _Site, name: str, node: str) -> float:
    meta = (await _pod(site, name, 1))["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta["name"], "namespace": fleet.NAMESPACE, "uid": meta["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    began = time.perf_counter()
    await site.api.post(f"/api/v1/namespaces/{fleet.NAMESPACE}/pods/{meta['name']}/binding", body, "bench")
    return time.perf_counter() - began


async def _pod(site: _Site, name: str, units: int, *, is_soft: bool = False) -> dict[str, Any]:
    """A pending pod, in the form that kube-scheduler sends."""
    # several extenders are measured in one cluster
    body = fleet.pod(f"{name}-{site.pid}", units, is_soft=is_soft)
    body["metadata"]["uid"] = await fleet.create_pod(site.api, body)
    return body


def _interrupt(control_plane: ControlPlane, site: _Site) -> None:
    """Stop the API server for longer than the extender's Lease: its watches and the new term list everything again."""
    control_plane.stop_apiserver()
    time.sleep(_OUTAGE_SECONDS)
    control_plane.start_apiserver()
    site.extender.process.wait_ready(site.extender.is_ready, 120)
    time.sleep(_CALM_SECONDS)
