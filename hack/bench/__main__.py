"""`make bench`: the budgets of the design, measured on the real thing, as a table and as build/bench.json.

    python -m hack.bench [--against COMMIT [--rounds 3] [--own-bench]]

All in one run, on one control plane, so that ratios mean something on a noisy machine. docs/performance.md describes the
methods. With --against, see against.py.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hack.bench import against, footprint, gpus, latency, load
from hack.bench.allocation import allocation
from hack.bench.load import GPUS, MANY_GPUS
from hack.bench.results import Result, publishing
from hack.bench.running import bench_folder, show_progress
from hack.bench.start import start
from hack.bench.turns import loop_turn_max
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.observe import Observer

_ROOT = Path(__file__).parents[2]
_OUT = _ROOT / "build" / "bench.json"
_PLUGINS: dict[str, dict[str, Any]] = {
    node_name: {"simulated": [{"resourceName": GPU, "count": count}]}
    for node_name, count in {NODE_A: GPUS, NODE_B: MANY_GPUS}.items()
}
# real pynvml on a fake driver library; a separate agent, so that the others keep their load
_PLUGINS[gpus.NODE] = {"nvml": {"pollSeconds": 5}}
_PLUGINS[footprint.NODE_PARTS] = {
    "simulated": [
        {
            "resourceName": footprint.PARTS_NAME,
            "count": footprint.DEVICES_WITH_PARTS,
            "partsPerDevice": footprint.PARTS,
            "parts": {"placement": "same-parent"},
        }
    ]
}

Progress = Callable[[str], None]


def measure(results: dict[str, Result], progress: Progress) -> None:
    """Fills `results`, with one or more rows after each measurement."""
    with bench_folder() as folder:
        _without_cluster(results, folder, progress)
        _with_cluster(results, folder, progress)


def _without_cluster(results: dict[str, Result], folder: Path, progress: Progress) -> None:
    """Run first, while none of our other processes runs."""
    progress("measuring the device manager")
    results |= {"allocate_8": load.allocate(8, 200, 20_000), "allocate_1000": load.allocate(1000, 20, 2_000)}
    progress("measuring allocations through a plugin")
    results |= allocation(folder)
    progress("measuring turns of the event loops")
    results |= loop_turn_max()
    progress("measuring starts of an agent")
    results |= start(folder)


def _with_cluster(results: dict[str, Result], folder: Path, progress: Progress) -> None:
    with ExitStack() as opened:
        fake = gpus.machine(folder)
        stack = opened.enter_context(Stack.start(folder, progress, _PLUGINS))
        kubeconfig = stack.control_plane.admin_kubeconfig
        nodes = opened.enter_context(Observer.nodes(kubeconfig))
        devices = opened.enter_context(Observer.node_devices(kubeconfig))
        pods = opened.enter_context(Observer.pods(kubeconfig))
        nodes.wait(latency.has(NODE_A, GPU, GPUS), since=0)
        nodes.wait(latency.has(NODE_B, GPU, MANY_GPUS), since=0)
        progress("measuring a minute without events")
        rows, whole = footprint.idle(stack, devices)
        results |= rows
        progress("measuring changes of health")
        results["health_to_node"] = latency.health_to_node(stack, nodes)
        progress("measuring Xids")
        results |= gpus.xids(stack, nodes, fake)
        progress("measuring ends of pods")
        results["pod_end_to_available"] = latency.pod_end_to_available(stack, devices, pods)
        progress("measuring 1,000 devices")
        results |= footprint.many_devices(stack, devices)
        progress("measuring parts of devices")
        results |= footprint.parts(stack, devices, whole)
        progress("measuring configurations")
        results["config_to_node"] = latency.config_to_node(stack, nodes)
        configs = opened.enter_context(Observer.configs(kubeconfig))
        results["refusal_to_status"] = latency.refusal_to_status(stack, configs)
        # last: the agent keeps a watch for each of its resources
        progress("measuring registrations")
        results["registration_to_node"] = latency.registration_to_node(stack, nodes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description=(__doc__ or "").partition("\n")[0])
    against.add_options(parser)
    parser.add_argument("--own-bench", action="store_true", help="measure that commit with its own bench")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.against:
        return against.against(options)
    with publishing(_OUT) as results:
        measure(results, show_progress)
    return 0


if __name__ == "__main__":
    sys.exit(main())
