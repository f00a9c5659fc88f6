"""`make demo GPU=shares`: pods share two GPUs by units of memory; one that fits on no GPU waits until there is room on one."""

import os
import time
from pathlib import Path

from hack.cluster.local.current import open_cluster
from hack.cluster.local.stack import Stack
from hack.cluster.observe import Observer
from hack.demo.gpu_node import NODE, GpuNode
from hack.demo.narration import Broken, narrate, show_progress
from hack.fake_nvml.library import FakeNvml

_MEMORY = "aliyun.com/gpu-mem"
# of each GPU: 81559 MiB
_UNITS = 79
_PLUGINS = {NODE: {"nvml": {"sharing": [{"memory": {"unit": "1Gi"}}]}}}
_EIGHT = {f"infer-{number}": {_MEMORY: 16} for number in range(8)}
_LARGE = "large"


def demo(folder: Path) -> str:
    os.environ.update(FakeNvml(folder / "nvml", "h100-pair").environment())
    narrate(
        "A Kubernetes control plane, a node with two GPUs of 80 GB that are shared by memory, its agent, the operator"
    )
    with (
        Stack.start(folder, show_progress, _PLUGINS, open_cluster) as stack,
        Observer.nodes(stack.control_plane.admin_kubeconfig) as nodes,
    ):
        return _story(stack, GpuNode(stack, nodes))


def _story(stack: Stack, node: GpuNode) -> str:
    narrate(f"Each GiB is a unit of {_MEMORY}: pods ask for as many as they need")
    node.until_capacity(_MEMORY, 2 * _UNITS, since=0.0)
    node.show("get", "nodedevices")
    node.show_parts(_MEMORY)
    narrate("Eight pods of 16 units: a pod's units are all of one GPU, and one GPU is filled before the next")
    node.start_pods(**_EIGHT)
    stack.wait_for("eight pods hold units", lambda: node.holders().keys() == _EIGHT.keys())
    node.show("get", "poddevices", "-A")
    node.show_parts(_MEMORY)
    _fits_nowhere(stack, node)
    narrate("One of the eight ends: now there is room on its GPU")
    began = time.monotonic()
    node.end_pod("infer-0")
    stack.wait_for("the large pod holds units", lambda: _LARGE in node.holders())
    print(f"  it has its units {(time.monotonic() - began) * 1000:.0f} ms after kubectl delete began")
    node.show("get", "poddevices", "-A")
    node.show_parts(_MEMORY)
    if mixed := [held["name"] for held in node.status(_MEMORY)["allocations"] if len(held["parts"]) != 1]:
        raise Broken(f"units of two GPUs went to {mixed}")
    return "pods shared GPUs by memory, none got units of two GPUs"


def _fits_nowhere(stack: Stack, node: GpuNode) -> None:
    narrate(
        "One more asks for 20: that many are free, though not on one GPU. The scheduler sees the sum; the agent lets it wait"
    )
    node.start_pods(**{_LARGE: {_MEMORY: 20}})
    stack.wait_for("it waits", lambda: _LARGE in node.waiting(_MEMORY))
    node.show_waiting(_MEMORY)
    reason, _ = node.waiting(_MEMORY)[_LARGE]
    if reason != "NoDeviceFits":
        raise Broken(f"it waits for another reason: {reason}")
