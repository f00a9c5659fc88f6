"""`make bench-hostile`: the cost of plugins that keep sending long lists: starts of containers, and memory after they
ended.

Measures a plain container's CreateContainer, called like a runtime does. Once a plugin serves 20 names of 14,000
devices; once one serves 64 names of 30,000, whose lists change as fast as the agent reads. Measures the agent's memory
before, and two minutes after they ended. For comparison, the same number of ended plugins with one device each, as
each keeps a NodeDevice and a watch for an hour.
"""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from hack.bench.load import event_loop
from hack.bench.memory import charged_mib
from hack.bench.results import Result, judged, publish, worst
from hack.bench.running import bench_folder, show_progress
from tests.cluster.build.binaries import find
from tests.cluster.chart import install, installed_manifests
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import NODE_A, Program, agent_program
from tests.cluster.processes.processes import reserved_ports
from tests.fakes.hostile_lists import hostile_lists
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection

_OUT = Path(__file__).parents[2] / "build" / "bench-hostile.json"
# number of names, and of devices of each
_PLUGINS = ((20, 14_000), (64, 30_000))
_SECONDS = 30.0
_LEAST = 200
_PAUSE_SECONDS = 0.1
_CALM_SECONDS = 10.0
# the agent releases memory every half minute of these
_KNOWN_SECONDS = 40.0
_GONE_SECONDS = 120.0

Progress = Callable[[str], None]


def measure(progress: Progress) -> dict[str, Result]:
    with bench_folder() as folder:
        return _measure(folder, progress)


def _measure(folder: Path, progress: Progress) -> dict[str, Result]:
    results: dict[str, Result] = {}
    with ExitStack() as opened:
        call = opened.enter_context(event_loop())
        agent, connection = _agent(folder, call, opened, progress)
        assert agent.process.pid is not None
        pid, most = agent.process.pid, 0.0
        time.sleep(_KNOWN_SECONDS)
        before = charged_mib(pid)
        with hostile_lists(agent.plugin_dir, max(names for names, _ in _PLUGINS), 1):
            time.sleep(_CALM_SECONDS)
        time.sleep(_KNOWN_SECONDS)
        known = charged_mib(pid)
        for names, devices in _PLUGINS:
            progress(f"{names} names of {devices} devices")
            with hostile_lists(agent.plugin_dir, names, devices):
                taken, peak = _creations(connection, call, pid)
            most = max(most, peak)
            name = f"container_beside_{names}x{devices}"
            results[name] = judged(worst(taken), worst(taken), "s", 0.1, len(taken))
            results[f"{name}_most"] = judged(max(taken), max(taken), "s", 1.0, len(taken))
        progress("they are gone")
        time.sleep(_GONE_SECONDS)
        after = charged_mib(pid)
        results["agent_memory_before"] = judged(before, before, "MiB", 40, 1)
        results["agent_memory_names"] = judged(known, known, "MiB", 50, 1)
        results["agent_memory_most"] = judged(most, most, "MiB", 220, 1)
        results["agent_memory_after"] = judged(after / before, after / before, "ratio", 1.4, 1)
        results["agent_memory_after_names"] = judged(after / known, after / known, "ratio", 1.15, 1)
    return results


def _agent(
    folder: Path, call: Callable[[Any], Any], opened: ExitStack, progress: Progress
) -> tuple[Program, PluginConnection]:
    """An agent that runs on a Node of its own, and the runtime's side of its connection."""
    find(["helm"], progress)
    manifests = installed_manifests({})
    control_plane = opened.enter_context(ControlPlane.start(folder / "cluster", progress))
    control_plane.add_nodes([NODE_A])
    install(control_plane, manifests)
    (port,) = opened.enter_context(reserved_ports(1))
    home = folder / NODE_A
    home.mkdir(mode=0o700)
    runtime = FakeRuntime(home / "nri.sock")
    call(runtime.__aenter__())
    opened.callback(lambda: call(runtime.__aexit__()))
    settings = {"runtime": "nri", "advertiseWithoutInjection": False}
    agent = agent_program(control_plane, home, NODE_A, port, **settings)
    agent.start()
    opened.callback(agent.process.kill)
    return agent, call(runtime.plugin())


def _creations(connection: PluginConnection, call: Callable[[Any], Any], pid: int) -> tuple[list[float], float]:
    """Seconds of each call, one after the other; and the agent's maximum MiB after any of them."""
    taken: list[float] = []
    most = 0.0
    until = time.monotonic() + _SECONDS
    number = 0
    while time.monotonic() < until or len(taken) < _LEAST:
        number += 1
        taken.append(call(_created(connection, f"uid-{number}")))
        most = max(most, charged_mib(pid))
        time.sleep(_PAUSE_SECONDS)
    return taken, most


async def _created(connection: PluginConnection, uid: str) -> float:
    pod = api_pb2.PodSandbox(id=f"s-{uid}", name=uid, namespace="n", uid=uid)
    container = api_pb2.Container(id=uid, pod_sandbox_id=pod.id, name="c", state=api_pb2.CONTAINER_CREATED)
    began = time.monotonic()
    await connection.create_container(pod, container)
    taken = time.monotonic() - began
    await connection.container_event("RemoveContainer", pod, container)
    await connection.remove_pod_sandbox(pod)
    return taken


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = measure(show_progress)
    publish(results, _OUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
