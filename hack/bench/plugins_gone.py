"""`make bench-plugins`: hundreds of plugins with long lists end at once, while another keeps serving.

Measures memory of the agent and of the API server, and how long the other plugin's changes and pods wait. Two runs,
each on a control plane of its own: in the first, every plugin has one device; the API server's memory is compared to
that.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodedevice_api.names import node_device_name

from hack.bench.latency import has
from hack.bench.load import event_loop
from hack.bench.memory import charged_mib
from hack.bench.operator.counts import peak_rss_mib
from hack.bench.results import Result, judged, publish, worst
from hack.bench.running import bench_folder, show_progress
from tests.cluster.api import NodeDevice, Pod
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import NODE_A, Program, Stack
from tests.cluster.observe import Observer
from tests.fakes.many_plugins import MOST, many_plugins
from tests.fakes.plugin import FakeDevice, FakePlugin

_OUT = Path(__file__).parents[2] / "build" / "bench-plugins.json"
_BESIDE = "beside.example.com/gpu"
_NAMESPACE = "beside"
# Each fails and recovers at intervals: a flapping device waits on purpose.
_DEVICES = 64
_CALM_SECONDS = 10.0
_GONE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0

Progress = Callable[[str], None]


@dataclass
class Seen:
    """Measurements of one run: memory in MiB at its peak, times in seconds. still_running: endpoints that do not show
    the end.
    """

    agent_mib: float = 0.0
    api_server_mib: float = 0.0
    still_running: int = 0
    changes: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


class Beside:
    """The plugin that keeps serving, and its pods."""

    def __init__(self, stack: Stack, call: Callable[[Any], Any], nodes: Observer) -> None:
        self._cluster, self._call, self._nodes = stack.control_plane, call, nodes
        self._plugin = FakePlugin(_BESIDE, {f"d{index}": FakeDevice() for index in range(_DEVICES)})
        self._cluster.add_namespace(_NAMESPACE)
        call(self._plugin.join(stack.agents[NODE_A].plugin_dir))
        nodes.wait(has(NODE_A, _BESIDE, _DEVICES), since=0, timeout_seconds=_PATIENCE_SECONDS)

    def change_seconds(self, number: int) -> float:
        """A device breaks, or recovers -> the Node's capacity has changed. number: of the change."""
        is_healthy = number % 2 == 1
        # pods hold the first ones
        device_id = f"d{_DEVICES - 1 - number // 2 % (_DEVICES // 2)}"
        self._nodes.forget()
        began = time.monotonic()
        self._call(self._plugin.set_health(device_id, is_healthy))
        wanted = _DEVICES if is_healthy else _DEVICES - 1
        return self._nodes.wait(has(NODE_A, _BESIDE, wanted), began, _PATIENCE_SECONDS).at - began

    def start_seconds(self, number: int) -> float:
        """A pod is created -> its device is on disk, and in the NodeDevice."""
        client, name = self._cluster.client, f"p{number}"
        began = time.monotonic()
        client.create(Pod.from_dict(a_pod(name, _NAMESPACE, {_BESIDE: 1}, NODE_A)))
        while not self._holds(name):
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise TimeoutError(f"pod {name} has no device")
            time.sleep(_POLL_SECONDS)
        passed = time.monotonic() - began
        client.delete(Pod, name, namespace=_NAMESPACE, grace_period=0)
        return passed

    def _holds(self, pod: str) -> bool:
        found: Any = self._cluster.client.get(NodeDevice, node_device_name(NODE_A, _BESIDE))
        return any(held["name"] == pod for held in (found.status or {}).get("allocations", ()))


def run(plugins: int, devices: int, progress: Progress) -> Seen:
    """plugins: number that ends; each has this number of devices."""
    with bench_folder() as folder, Stack.start(folder, progress, {NODE_A: {}}) as stack, event_loop() as call:
        return _run(stack, call, plugins, devices, progress)


def _run(stack: Stack, call: Callable[[Any], Any], plugins: int, devices: int, progress: Progress) -> Seen:
    found, control_plane = Seen(), stack.control_plane
    assert isinstance(control_plane, ControlPlane)
    agent, api_server = _pid(stack.agents[NODE_A]), control_plane.pids()["kube-apiserver"]
    with Observer.nodes(control_plane.admin_kubeconfig) as nodes:
        beside = Beside(stack, call, nodes)
        progress(f"{plugins} plugins with {devices} devices each come, and go")
        with many_plugins(stack.agents[NODE_A].plugin_dir, plugins, devices) as process:
            for _ in range(round(_CALM_SECONDS / _PAUSE_SECONDS)):
                time.sleep(_PAUSE_SECONDS)
                found.agent_mib = max(found.agent_mib, charged_mib(agent))
            with _measured(beside, found, agent):
                process.kill()
                time.sleep(_GONE_SECONDS)
    found.api_server_mib = peak_rss_mib(api_server)
    shown = control_plane.kubectl("get", "nodedevices", "-o", "jsonpath={.items[*].status.endpoint.state}").split()
    found.still_running = plugins - shown.count("Stopped")
    return found


@contextlib.contextmanager
def _measured(beside: Beside, found: Seen, agent: int) -> Iterator[None]:
    """Measure changes and pods of the other plugin, and the agent's memory, repeatedly until the block ends."""
    is_over = threading.Event()
    errors: list[Exception] = []

    def measure() -> None:
        number = 0
        try:
            while not is_over.wait(_PAUSE_SECONDS):
                found.agent_mib = max(found.agent_mib, charged_mib(agent))
                found.changes.append(beside.change_seconds(number))
                if number % 2:
                    found.starts.append(beside.start_seconds(number))
                number += 1
        except Exception as exc:
            errors.append(exc)

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if errors:
        raise errors[0]


def _pid(program: Program) -> int:
    assert program.process.pid is not None
    return program.process.pid


def measure(plugins: int, devices: int, progress: Progress) -> dict[str, Result]:
    one, many = run(plugins, 1, progress), run(plugins, devices, progress)
    more = many.api_server_mib - one.api_server_mib
    return {
        "agent_memory_plugins": judged(many.agent_mib, many.agent_mib, "MiB", 230, 1),
        "api_server_more_rss": judged(more, more, "MiB", 300, 1),
        "endpoints_not_stopped": judged(many.still_running, many.still_running, "objects", 0, plugins),
        "change_beside": judged(max(many.changes), worst(many.changes), "s", 0.5, len(many.changes)),
        "pod_beside": judged(max(many.starts), worst(many.starts), "s", 1.5, len(many.starts)),
        "change_beside_one": judged(max(one.changes), worst(one.changes), "s", 0.5, len(one.changes)),
        "pod_beside_one": judged(max(one.starts), worst(one.starts), "s", 1.5, len(one.starts)),
    }


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plugins = int(os.environ.get("BENCH_PLUGINS") or MOST)
    devices = int(os.environ.get("BENCH_DEVICES") or 1000)
    results = measure(plugins, devices, show_progress)
    publish(results, _OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
