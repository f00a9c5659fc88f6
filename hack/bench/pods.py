"""`make bench-pods`: the API server's cost when every agent lists the pods of its node; for comparison, the same in
pages.

BENCH_NODES: number of agents, 5,000. BENCH_PODS: pods of each node, 4. An agent lists by one request without `limit`,
like its own client: such a request uses the API server's index of pods by node. A request with a limit walks all pods
of the cluster, so only a few agents list in pages. Only the requests are simulated; the API server and its rules are
real.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from hack.bench.operator import fleet
from hack.bench.operator.api import Api, Refused
from hack.bench.operator.counts import Cost
from hack.bench.results import Result, judged, publish
from hack.bench.running import bench_folder, show_progress
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ClusterError

_OUT = Path(__file__).parents[2] / "build" / "bench-pods.json"
_PODS = "/api/v1/pods"
_API_SERVER = "kube-apiserver"
# connections that are opened in parallel
_AT_ONCE = 50
_IN_PAGES = 100
_LIMIT = "2"
# a typical pod of some kilobytes
_FILLER = "x" * 3000

Progress = Callable[[str], None]


class _Metadata(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    items: list[msgspec.Raw]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def measure(count: int, pods: int, folder: Path, progress: Progress) -> dict[str, Result]:
    with ControlPlane.start(folder / "cluster", lambda _: None) as control_plane:
        control_plane.stop_controllers()
        async with Api(control_plane.admin_kubeconfig, in_flight=_AT_ONCE) as api:
            progress(f"{count * pods} pods")
            names = [(fleet.node_name(node), number) for node in range(count) for number in range(pods)]
            create = f"/api/v1/namespaces/{fleet.NAMESPACE}/pods"
            await asyncio.gather(*(api.post(create, _pod(node, number), "bench") for node, number in names))
            pid = control_plane.pids()[_API_SERVER]
            progress(f"{count} agents list the pods of their nodes")
            whole = await _cost(pid, [_whole(api, fleet.node_name(node), pods) for node in range(count)])
            few = min(_IN_PAGES, count)
            progress(f"{few} agents list them in pages")
            pages = await _cost(pid, [_in_pages(api, fleet.node_name(node), pods) for node in range(few)])
    return {
        "pods_list_cpu": judged(1000 * whole / count, 1000 * whole / count, "ms", 5.0, count),
        "pods_list_cpu_all": judged(whole, whole, "s", 25.0, 1),
        # for comparison only
        "pods_pages_cpu": judged(1000 * pages / few, 1000 * pages / few, "ms", 10_000.0, few),
    }


async def _cost(pid: int, lists: Iterable[Awaitable[None]]) -> float:
    """CPU seconds of the API server for all reads."""
    cost = Cost({_API_SERVER: pid})
    await asyncio.gather(*lists)
    return cost.seconds()[_API_SERVER]


async def _whole(api: Api, node: str, pods: int) -> None:
    found = msgspec.json.decode(await api.get(_PODS, _selector(node)), type=_List)
    if len(found.items) != pods:
        raise Refused(f"{node} has {len(found.items)} pods, and not {pods}")


async def _in_pages(api: Api, node: str, pods: int) -> None:
    count, query = 0, {**_selector(node), "limit": _LIMIT}
    while True:
        found = msgspec.json.decode(await api.get(_PODS, query), type=_List)
        count += len(found.items)
        if not found.metadata.continue_:
            break
        query = {**query, "continue": found.metadata.continue_}
    if count != pods:
        raise Refused(f"{node} has {count} pods, and not {pods}")


def _selector(node: str) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={node}"}


def _pod(node: str, number: int) -> dict[str, Any]:
    metadata = {"name": fleet.pod_name(node, number), "annotations": {"bench.example.com/filler": _FILLER}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        count, pods = (
            int(os.environ.get(name, usual)) for name, usual in (("BENCH_NODES", "5000"), ("BENCH_PODS", "4"))
        )
    except ValueError:
        print("BENCH_NODES and BENCH_PODS are numbers, such as 5000 and 4", file=sys.stderr)
        return 2
    try:
        with bench_folder() as folder:
            results = asyncio.run(measure(count, pods, folder, show_progress))
    except (ClusterError, Refused) as error:
        print(f"bench-pods: {error}", file=sys.stderr)
        return 1
    publish(results, _OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
