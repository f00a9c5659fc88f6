"""`make bench`: the budgets of the design, measured on the real thing, as a table and as build/bench.json.

All in one run, on one control plane, so that ratios mean something on a noisy machine. Times are in seconds, as a client
of the API sees them; memory in MiB of resident set.
"""

import asyncio
import contextlib
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml
from nodedevice_agent.plugins import control
from rich.console import Console
from rich.table import Table

from tests.cluster.observe import Observer, Seen, capacity
from tests.cluster.stack import GPU, NODE_A, NODE_B, Stack
from tests.fakes.plugin import FakeDevice, FakePlugin

RUNS = 60
_OUT = Path(__file__).parents[2] / "build" / "bench.json"
_PLUGINS: dict[str, dict[str, Any]] = {
    NODE_A: {"simulated": [{"resourceName": GPU, "count": 8}]},
    NODE_B: {"simulated": [{"resourceName": GPU, "count": 8}]},
}
_NAMESPACE = "bench"


class Result(msgspec.Struct):
    """value: median. goal: what the design asks of the median. ok: value <= goal. n: measurements."""

    value: float
    p99: float
    unit: str
    goal: float
    ok: bool
    n: int


def result(measured: list[float], unit: str, goal: float) -> Result:
    value = statistics.median(measured)
    p99 = statistics.quantiles(measured, n=100, method="inclusive")[98]
    return Result(round(value, 5), round(p99, 5), unit, goal, value <= goal, len(measured))


def health_to_node(stack: Stack, nodes: Observer) -> Result:
    """A device's health changes in the plugin -> the Node's capacity has changed."""
    state_dir = stack.agents[NODE_A].folder
    measured = []
    for run in range(RUNS):
        healthy = run % 2 == 1
        nodes.forget()
        began = time.monotonic()
        control.set_health(state_dir, GPU, f"gpu-{run // 2 % 8}", healthy)
        wanted = 8 if healthy else 7
        measured.append(nodes.wait(_has(NODE_A, GPU, wanted), since=began).at - began)
        time.sleep(0.1)  # so that no run waits for the write pause of the one before
    return result(measured, "s", 0.15)


def registration_to_node(stack: Stack, nodes: Observer) -> Result:
    """A device plugin calls Register -> its devices are in the Node's capacity."""
    measured = []
    with _loop() as call:
        for run in range(RUNS):
            name = f"bench.example.com/r{run}"
            plugin = FakePlugin(name, {f"d{i}": FakeDevice() for i in range(4)})
            call(plugin.start(stack.agents[NODE_B].plugin_dir))
            nodes.forget()
            began = time.monotonic()
            call(plugin.register())
            measured.append(nodes.wait(_has(NODE_B, name, 4), since=began).at - began)
            call(plugin.stop())
    return result(measured, "s", 0.3)


def pod_end_to_available(stack: Stack, devices: Observer, pods: Observer) -> Result:
    """The API says that a pod is gone -> its device is available again in the NodeDevice."""
    control_plane = stack.control_plane
    control_plane.add_namespace(_NAMESPACE)
    measured = []
    for run in range(RUNS):
        name = f"p{run}"
        began = time.monotonic()
        control_plane.apply(yaml.safe_dump(_pod(name)))
        devices.wait(lambda seen: _available(seen.object) == 7, since=began)
        began = time.monotonic()
        control_plane.kubectl("delete", "pod", name, "-n", _NAMESPACE, "--wait=false", "--grace-period=0")
        gone = pods.wait(_deleted(name), since=began)
        free = devices.wait(lambda seen: _available(seen.object) == 8, since=began)
        measured.append(max(0.0, free.at - gone.at))
        devices.forget()
        pods.forget()
    return result(measured, "s", 0.2)


def resident_memory(pid: int, goal: float) -> Result:
    """Resident set of an idle process, sampled for a while."""
    process = psutil.Process(pid)
    measured = []
    for _ in range(RUNS):
        measured.append(process.memory_info().rss / 2**20)
        time.sleep(0.25)
    return result(measured, "MiB", goal)


def _has(node_name: str, resource_name: str, count: int) -> Callable[[Seen], bool]:
    return lambda seen: capacity(seen, node_name, resource_name) == count


def _deleted(name: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.kind == "DELETED" and bool(seen.object.metadata.name == name)


def _available(found: Any) -> int | None:
    if found.metadata.name != f"{NODE_A}.example.com.gpu":
        return None
    status = found.status or {}
    return int(status["available"]) if "available" in status else None


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app", "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"nodeName": NODE_A, "containers": [container]},
    }


@contextlib.contextmanager
def _loop() -> Iterator[Callable[[Any], Any]]:
    """An event loop in a thread, for plugins that serve while this thread waits. Gives a function that runs a coroutine."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="plugins", daemon=True)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def measure(say: Callable[[str], None]) -> dict[str, Result]:
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-bench-"))
    results: dict[str, Result] = {}
    try:
        with Stack.start(folder, say, _PLUGINS) as stack:
            kubeconfig = stack.control_plane.admin_kubeconfig
            with (
                Observer.nodes(kubeconfig) as nodes,
                Observer.node_devices(kubeconfig) as devices,
                Observer.pods(kubeconfig) as pods,
            ):
                for node in (NODE_A, NODE_B):
                    nodes.wait(_has(node, GPU, 8), since=0)
                agent, operator = stack.agents[NODE_A].process.pid, stack.operator.process.pid
                assert agent is not None
                assert operator is not None
                steps: dict[str, Callable[[], Result]] = {
                    "agent_rss": lambda: resident_memory(agent, 64),
                    "operator_rss": lambda: resident_memory(operator, 96),
                    "health_to_node": lambda: health_to_node(stack, nodes),
                    "pod_end_to_available": lambda: pod_end_to_available(stack, devices, pods),
                    "registration_to_node": lambda: registration_to_node(stack, nodes),
                }
                for name, step in steps.items():
                    say(f"measuring {name}")
                    results[name] = step()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def show(results: dict[str, Result]) -> None:
    table = Table(title="nodedevice against its budgets")
    for column in ("what", "median", "p99", "goal", "unit", "n", "ok"):
        table.add_column(column, justify="left" if column in ("what", "unit", "ok") else "right")
    for name, r in results.items():
        table.add_row(name, f"{r.value:.3f}", f"{r.p99:.3f}", f"{r.goal:g}", r.unit, str(r.n), "yes" if r.ok else "NO")
    Console(width=100).print(table)


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = measure(lambda line: print(f"  {line}", file=sys.stderr, flush=True))
    _OUT.parent.mkdir(exist_ok=True)
    _OUT.write_text(json.dumps(msgspec.to_builtins(results), indent=2) + "\n")
    show(results)
    print(f"written to {_OUT.relative_to(Path.cwd()) if _OUT.is_relative_to(Path.cwd()) else _OUT}")
    return 0 if all(r.ok for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
