"""Puts load on a node for benchmarks: pods and plugins, and their state in the API; and the device manager alone.

allocate() counts CPU time of this process: the manager does no I/O and waits for nothing, and other work on the
machine does not count.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_api.names import node_device_name

from hack.bench.results import PER_SECOND, Result, result
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import Stack
from tests.cluster.observe import Observer, Seen
from tests.e2e.real_node import device_plugins

GPUS = 8
MANY_GPUS = 32
# the kubelet's default bound of pods on a node
PODS = 110
_RUNS = 60
_NAME = "example.com/gpu"
_RESPONSE = AllocateResponse(b"answer", ContainerEdits())


@contextlib.contextmanager
def full_node(
    stack: Stack, devices: Observer, node_name: str, resource_name: str, total: int, holders: int
) -> Iterator[None]:
    """A node with 110 pods for the length of the block; `holders` of them have one device each.

    total: devices of the resource.
    """
    namespace = f"full-{node_name}"
    stack.control_plane.add_namespace(namespace)
    limits: list[dict[str, int]] = [{}] * (PODS - holders) + [{resource_name: 1}] * holders
    pods = [a_pod(f"pod-{i}", namespace, limit, node_name) for i, limit in enumerate(limits)]
    began = time.monotonic()
    stack.control_plane.apply(yaml.safe_dump_all(pods))
    devices.wait(lambda seen: available(seen, node_name, resource_name) == total - holders, began, 60)
    try:
        yield
    finally:
        began = time.monotonic()
        stack.control_plane.remove_namespace(namespace)
        devices.wait(lambda seen: available(seen, node_name, resource_name) == total, began, 60)


def status(seen: Seen, node_name: str, resource_name: str) -> dict[str, Any]:
    """The status in a NodeDevice event; empty for another object or one without status."""
    if seen.object.metadata.name != node_device_name(node_name, resource_name):
        return {}
    found: dict[str, Any] = seen.object.status or {}
    return found


def available(seen: Seen, node_name: str, resource_name: str) -> int | None:
    return status(seen, node_name, resource_name).get("available")


@contextlib.contextmanager
def event_loop() -> Iterator[Callable[[Any], Any]]:
    """An event loop in a thread, for plugins that serve while this thread waits. Yields a function that runs a
    coroutine.
    """
    with device_plugins.event_loop() as loop:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)


def allocate(devices: int, pods_a_run: int, goal: float) -> Result:
    """Cycles per second: a pod is created, Allocate returns, the pod is deleted. devices: of the resource."""
    manager = DeviceManager(0.0)
    manager.connected(_NAME, 1, PluginOptions(), 0.0)
    manager.listed(_NAME, 1, accept(Device(f"gpu-{index}") for index in range(devices)), 0.0)
    manager.settle(0.0)
    measured = []
    for run in range(_RUNS):
        pods = [_pod(f"{run}-{number}") for number in range(pods_a_run)]
        began = time.process_time()
        for pod in pods:
            _cycle(manager, pod)
        measured.append(pods_a_run / (time.process_time() - began))
    return result(measured, PER_SECOND, goal)


def _cycle(manager: DeviceManager, pod: Pod) -> None:
    manager.pod_events.seen(pod, 1.0)
    (call,) = manager.settle(1.0)
    assert isinstance(call, CallAllocate)
    manager.allocated(call.ticket, _RESPONSE, 1.0)
    manager.settle(1.0)
    manager.pod_events.gone(pod.uid, 1.0)
    manager.settle(1.0)


def _pod(uid: str) -> Pod:
    return Pod(uid, "default", uid, (Container("main", limits={_NAME: 1}),))
