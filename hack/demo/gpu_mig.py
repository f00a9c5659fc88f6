"""`make demo GPU=mig-a100`: pods get MIG instances by profile, and what `nvidia-smi mig` does to instances is followed."""

import os
import time
from pathlib import Path

from hack.demo.demo_stack import start_stack
from hack.demo.gpu_node import NODE, GpuNode
from hack.demo.narration import narrate
from hack.fake_nvml.library import FakeNvml
from tests.cluster.local.stack import Stack
from tests.cluster.observe import Observer

_WHOLE = "nvidia.com/gpu"
_SMALL, _QUARTER, _HALF = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"
# of the machine
_EXPECTED = {_WHOLE: 1, _SMALL: 8, _QUARTER: 1, _HALF: 1}
_PLUGINS = {NODE: {"nvml": {"mig": "mixed", "pollSeconds": 1}}}


def demo(folder: Path) -> str:
    gpus = FakeNvml(folder / "nvml", "mig-a100")
    os.environ.update(gpus.environment())
    narrate("A Kubernetes control plane, a node with three A100 (two cut into MIG instances), its agent, the operator")
    with (
        start_stack(folder, plugins=_PLUGINS, resources=len(_EXPECTED)) as stack,
        Observer.nodes(stack.control_plane.admin_kubeconfig) as nodes,
    ):
        return _Story(stack, GpuNode(stack, nodes), gpus).run()


class _Story:
    def __init__(self, stack: Stack, node: GpuNode, gpus: FakeNvml) -> None:
        self._stack, self._node, self._gpus = stack, node, gpus

    def run(self) -> str:
        self._inventory()
        self._pods()
        self._cut_again()
        self._take_a_held_one()
        self._cut_a_held_gpu()
        return "instances went from the driver to pods, and changes were followed"

    def _inventory(self) -> None:
        narrate("Each profile is a resource of its own; the GPU that is not in MIG mode is given out whole")
        for resource_name, count in _EXPECTED.items():
            self._node.until_capacity(resource_name, count, since=0.0)
        self._node.show("get", "nodedevices")

    def _pods(self) -> None:
        narrate("Pods ask for instances by their profile")
        self._node.start_pods(train={_HALF: 1}, infer={_SMALL: 2}, whole={_WHOLE: 1})
        held = {"train": f"{_HALF}=1", "infer": f"{_SMALL}=2", "whole": f"{_WHOLE}=1"}
        self._stack.wait_for("three pods hold devices", lambda: self._node.holders() == held)
        self._node.show("get", "poddevices", "-A")

    def _cut_again(self) -> None:
        first, second = self._free_neighbours()
        narrate(
            f"An administrator destroys two free instances of GPU 1, {first} and {second}, and makes a larger one of them"
        )
        began = time.monotonic()
        self._gpus.destroy(1, first)
        self._gpus.destroy(1, second)
        self._print_capacity(_SMALL, 6, began)
        began = time.monotonic()
        self._gpus.create(1, "2g.20gb")
        self._print_capacity(_QUARTER, 2, began)
        self._node.show("get", "nodedevices")

    def _take_a_held_one(self) -> None:
        narrate("An instance that a pod holds is destroyed by force: it shows, and the pod keeps its claim on it")
        self._gpus.destroy(0, 1)
        self._stack.wait_for("it shows", lambda: "Unhealthy" in self._node.health("train"))
        self._node.show("get", "poddevices", "-A")
        narrate("It is made again in the same place: it is the same instance, and it is healthy")
        self._gpus.create(0, "3g.40gb")
        self._stack.wait_for("it is healthy", lambda: self._node.health("train") == "Healthy")
        self._node.show("get", "poddevices", "-A")

    def _cut_a_held_gpu(self) -> None:
        narrate(
            "The GPU that a pod holds whole is put into MIG mode: its instance is not given out before the pod ends"
        )
        self._gpus.mig(2, "enabled")
        self._gpus.create(2, "2g.20gb")
        self._stack.wait_for("the instance shows", lambda: self._node.status(_QUARTER)["total"] == 3)
        self._node.show_devices(_QUARTER)
        began = time.monotonic()
        self._node.end_pod("whole")
        self._print_capacity(_QUARTER, 3, began)

    def _free_neighbours(self) -> tuple[int, int]:
        """GPU instances of GPU 1, side by side where one of twice the memory fits, that nobody holds."""
        status = self._node.status(_SMALL)
        held = {device for found in status["allocations"] for device in found["deviceIDs"]}
        attributes = [device["attributes"] for device in status["devices"] if device["id"] not in held]
        free = {int(its["gpuInstance"]) for its in attributes if its["index"] == "1"}
        # instances of an eighth of the memory have the numbers from 7 on
        return next((first, first + 1) for first in (7, 9, 11) if {first, first + 1} <= free)

    def _print_capacity(self, resource_name: str, expected: int, began: float) -> None:
        took = self._node.until_capacity(resource_name, expected, began)
        print(f"  {resource_name}: capacity of {NODE} is {expected} after {took * 1000:.0f} ms")
