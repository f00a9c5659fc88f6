"""Measures how long the API takes to show a change on a node. Seconds, from the view of a client of the API."""

import time
from collections.abc import Callable
from typing import Any

import yaml
from nodedevice_agent.plugins.simulated import control
from nodedevice_api import names
from nodedevice_operator.capacity.reconciler import NODE_WRITES_PER_SECOND

from hack.bench.load import GPUS, MANY_GPUS, available, event_loop
from hack.bench.results import Result, result
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.observe import Observer, Seen, capacity
from tests.fakes.plugin import FakeDevice, FakePlugin

RUNS = 60
# One for each write of a Node, so that no run waits for the previous run's write pause, or budget.
_WRITE_SECONDS = 1.25 / NODE_WRITES_PER_SECOND
_NAMESPACE = "bench"
_REPORT_SECONDS = 3.0
# Devices of each configuration. The number grows: a device that leaves and returns twice counts as flapping, and waits on
# purpose.
CONFIGURED = range(4, 4 + RUNS // 2)


def health_to_node(stack: Stack, nodes: Observer) -> Result:
    """A device's health changes in the plugin -> the Node's capacity has changed.

    Each device fails and recovers once: a flapping device waits on purpose.
    """
    state_dir = stack.agents[NODE_B].folder
    measured = []
    for run in range(RUNS):
        healthy = run % 2 == 1
        nodes.forget()
        began = time.monotonic()
        control.set_health(state_dir, GPU, f"gpu-{run // 2}", healthy)
        wanted = MANY_GPUS if healthy else MANY_GPUS - 1
        measured.append(nodes.wait(has(NODE_B, GPU, wanted), since=began).at - began)
        time.sleep(_WRITE_SECONDS)
    return result(measured, "s", 0.15)


def registration_to_node(stack: Stack, nodes: Observer) -> Result:
    """A device plugin calls Register -> its devices are in the Node's capacity."""
    measured = []
    with event_loop() as call:
        for run in range(RUNS):
            name = f"bench.example.com/r{run}"
            plugin = FakePlugin(name, {f"d{i}": FakeDevice() for i in range(4)})
            call(plugin.start(stack.agents[NODE_B].plugin_dir))
            nodes.forget()
            began = time.monotonic()
            call(plugin.register())
            measured.append(nodes.wait(has(NODE_B, name, 4), since=began).at - began)
            call(plugin.stop())
            # both its list and the end of its plugin are written
            time.sleep(2 * _WRITE_SECONDS)
    return result(measured, "s", 0.3)


def config_to_node(stack: Stack, nodes: Observer) -> Result:
    """A NodeDeviceConfig changes -> another number of its devices is in the Node's capacity, a client's own start included."""
    name = "bench.example.com/configured"
    measured = []
    for count in CONFIGURED:
        plugins = {"simulated": [{"resourceName": name, "count": count}]}
        body = {"metadata": {"name": "bench"}, "spec": {"plugins": plugins}}
        nodes.forget()
        began = time.monotonic()
        stack.control_plane.apply(
            yaml.safe_dump({"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE_CONFIG, **body})
        )
        measured.append(nodes.wait(has(NODE_B, name, count), since=began).at - began)
        time.sleep(2 * _WRITE_SECONDS)
    return result(measured, "s", 1.0)


def refusal_to_status(stack: Stack, configs: Observer) -> Result:
    """A NodeDeviceConfig gets a path that agents refuse -> its status names it and a node, a client's own start included."""
    measured = []
    for run in range(RUNS // 2):
        group = {"paths": [{"path": f"/etc/bench-{run}"}]}
        resource = {"resourceName": "bench.example.com/refused", "groups": [group]}
        body = {"metadata": {"name": "bench-refused"}, "spec": {"plugins": {"generic": [resource]}}}
        configs.forget()
        began = time.monotonic()
        stack.control_plane.apply(
            yaml.safe_dump({"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE_CONFIG, **body})
        )
        measured.append(configs.wait(_says(f"/etc/bench-{run}"), since=began).at - began)
        # longer than the interval of reports on a Lease
        time.sleep(_REPORT_SECONDS)
    return result(measured, "s", 1.0)


def pod_end_to_available(stack: Stack, devices: Observer, pods: Observer) -> Result:
    """The API shows the deletion of a pod -> its device is available again in the NodeDevice."""
    control_plane = stack.control_plane
    control_plane.add_namespace(_NAMESPACE)
    measured = []
    for run in range(RUNS):
        pod = a_pod(f"p{run}", _NAMESPACE, {GPU: 1}, NODE_A)
        began = time.monotonic()
        control_plane.apply(yaml.safe_dump(pod))
        devices.wait(_available(GPUS - 1), since=began)
        began = time.monotonic()
        control_plane.kubectl("delete", "pod", f"p{run}", "-n", _NAMESPACE, "--wait=false", "--grace-period=0")
        gone = pods.wait(_deleted(f"p{run}"), since=began)
        free = devices.wait(_available(GPUS), since=began)
        measured.append(max(0.0, free.at - gone.at))
        devices.forget()
        pods.forget()
        # both its allocation and its release are written
        time.sleep(2 * _WRITE_SECONDS)
    return result(measured, "s", 0.2)


def has(node_name: str, resource_name: str, count: int) -> Callable[[Seen], bool]:
    return lambda seen: capacity(seen, node_name, resource_name) == count


def _says(text: str) -> Callable[[Seen], bool]:
    return lambda seen: text in str((seen.object.get("status") or {}).get("refusals", ""))


def _available(count: int) -> Callable[[Seen], bool]:
    return lambda seen: available(seen, NODE_A, GPU) == count


def _deleted(name: str) -> Callable[[Seen], bool]:
    def is_it(seen: Seen) -> bool:
        pod: Any = seen.object
        return seen.kind == "DELETED" and bool(pod.metadata.name == name)

    return is_it
