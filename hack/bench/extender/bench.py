"""`make bench-extender`: the extender with fleets of growing size, as a table and build/bench-extender.json.

BENCH_NODES: the sizes, such as 500,5000. BENCH_PODS: bound pods per node, 20. docs/performance.md describes the
method.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from hack.bench.extender import throughput
from hack.bench.extender.fleet import PODS
from hack.bench.extender.run import measure
from hack.bench.results import Result, publishing
from hack.bench.running import bench_folder, show_progress

_OUT = Path(__file__).parents[3] / "build" / "bench-extender.json"
_SIZES = "500,5000"


async def _all(results: dict[str, Result], sizes: list[int], pods: int, folder: Path) -> None:
    results |= await throughput.measure(folder, show_progress)
    for nodes in sizes:
        await measure(results, nodes, folder, show_progress, pods)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes = [int(size) for size in (os.environ.get("BENCH_NODES") or _SIZES).split(",")]
    pods = int(os.environ.get("BENCH_PODS") or PODS)
    with bench_folder() as folder, publishing(_OUT) as results:
        asyncio.run(_all(results, sizes, pods, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
