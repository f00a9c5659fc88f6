"""`make bench-extender`: the extender with fleets of growing size, as a table and build/bench-extender.json.

    python -m hack.bench.extender.bench [--against COMMIT [--rounds 5]]

--against: the extender of that commit runs in the same rounds, on the same clusters, as the side `before`.
BENCH_NODES: the sizes, such as 200,5000. BENCH_PODS: bound pods per node, 20. BENCH_BURST: pods that each side of a
round binds, 1000. BENCH_ONLY: `verbs` or `pods`, for one half alone. docs/performance.md describes the method.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from hack.bench import against
from hack.bench.extender import run, throughput
from hack.bench.extender.fleet import PODS
from hack.bench.results import Result, publishing
from hack.bench.running import bench_folder, show_progress
from hack.bench.trees import TreeError

_ROOT = Path(__file__).parents[3]
_OUT = _ROOT / "build" / "bench-extender.json"
_SIZES = "200,5000"
_VERBS, _THROUGHPUT = "verbs", "pods"


async def _all(results: dict[str, Result], folder: Path, settings: throughput.Settings) -> None:
    pods = int(os.environ.get("BENCH_PODS") or PODS)
    only = os.environ.get("BENCH_ONLY") or ""
    for nodes in (int(size) for size in (os.environ.get("BENCH_NODES") or _SIZES).split(",")):
        if only != _VERBS:
            await throughput.measure(results, nodes, folder, show_progress, settings)
        if only != _THROUGHPUT:
            await run.measure(results, nodes, folder, show_progress, pods, settings.before)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.bench.extender.bench", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--against", metavar="COMMIT", default="", help="measure its extender in the same rounds")
    parser.add_argument("--rounds", type=int, default=throughput.ROUNDS, help="default %(default)s")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            bench_folder() as folder,
            against.checked_out(options.against) as tree,
            publishing(_OUT) as results,
        ):
            burst = int(os.environ.get("BENCH_BURST") or throughput.PODS)
            before = str(tree.python.with_name("nodedevice-operator")) if tree is not None else ""
            asyncio.run(_all(results, folder, throughput.Settings(options.rounds, burst, before)))
    except TreeError as error:
        print(f"bench-extender: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
