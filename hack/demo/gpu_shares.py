"""`make demo GPU=shares`: pods share two GPUs by units of memory; a scheduler that asks the extender finds the GPU for each.

Of each choice it prints why, by the memory that was free before, and checks that the agent gave the pod the same.
"""

import os
import time
from pathlib import Path

from hack.demo import rendered_chart
from hack.demo.demo_stack import start_stack
from hack.demo.gpu_node import NODE, GpuNode
from hack.demo.narration import Broken, narrate, show_progress
from hack.fake_nvml.library import FakeNvml
from tests.cluster.local.stack import SCHEDULER, Stack
from tests.cluster.observe import Observer

_MEMORY = rendered_chart.SHARED
# of each GPU: 81559 MiB; the driver reserves 480 of them, and one program takes 640
_UNITS = 78
_PLUGINS = {NODE: {"nvml": {"sharing": [{"memory": {"unit": "1Gi"}}]}}}
# filled in this order, both GPUs have 14 left
_EIGHT = {f"infer-{number}": units for number, units in enumerate((32, 48, 6, 5, 3, 2, 16, 16))}
_LARGE, _LARGE_UNITS = "large", 20
# with the last one's units there is room for the large one
_ENDS = "infer-7"


def demo(folder: Path) -> str:
    os.environ.update(FakeNvml(folder / "nvml", "h100-pair").environment())
    narrate(
        "A Kubernetes control plane, a node with two GPUs of 80 GB that are shared by memory, its agent, the operator,"
        " the scheduler extender, and a second kube-scheduler that asks it"
    )
    with (
        start_stack(folder, plugins=_PLUGINS, scheduled=[_MEMORY]) as stack,
        Observer.nodes(stack.control_plane.admin_kubeconfig) as nodes,
    ):
        return _Story(stack, GpuNode(stack, nodes)).run()


class _Story:
    def __init__(self, stack: Stack, node: GpuNode) -> None:
        self._stack, self._node = stack, node

    def run(self) -> str:
        narrate(f"Each GiB is a unit of {_MEMORY}: pods ask for as many as they need")
        self._node.until_capacity(_MEMORY, 2 * _UNITS, since=0.0)
        self._node.show("get", "nodedevices")
        narrate(
            f"Eight pods with schedulerName {SCHEDULER}: the extender chooses the GPU where the pod fits and the least is"
            " left, so that the other one keeps room for large pods"
        )
        for name, units in _EIGHT.items():
            self._place(name, units)
        self._node.show("get", "poddevices", "-A")
        self._node.show_devices(_MEMORY)
        self._bound_in_vain()
        self._stays_pending()
        self._one_ends()
        return f"the extender found a GPU for each of {len(_EIGHT) + 1} pods, and the agent gave each the chosen one"

    def _place(self, name: str, units: int) -> None:
        before = self._node.free(_MEMORY)
        self._node.start_pod(name, {_MEMORY: units}, SCHEDULER)
        self._stack.wait_for(f"{name} holds units", lambda: name in self._node.holders())
        self._print_choice(name, units, before)

    def _print_choice(self, name: str, units: int, before: dict[str, int]) -> None:
        """The choice, and its reason in free memory. Raises Broken where it is not the best, or not what the pod has."""
        where, assigned = self._node.assigned(name, _MEMORY)
        if list(assigned.values()) != [units]:
            raise Broken(f"{name} asked for {units} of one GPU and was assigned {assigned}")
        [gpu] = assigned
        others = {other: free for other, free in before.items() if other != gpu}
        print(
            f"  {name} wants {units}: {where}, {gpu}, where {before[gpu]} were free and {before[gpu] - units} are left;"
        )
        print(
            "    " + "; ".join(_why_not(units, other, free, before[gpu]) for other, free in others.items()), flush=True
        )
        if any(units <= free < before[gpu] for free in others.values()):
            raise Broken("less would be left on another GPU")
        if (allocated := self._node.allocated(_MEMORY).get(name)) != assigned:
            raise Broken(f"{name} was assigned {assigned}, and the agent allocated {allocated}")

    def _bound_in_vain(self) -> None:
        narrate(
            f"One more asks for {_LARGE_UNITS}. First without the extender: the default scheduler sees the sum of both GPUs and"
            " binds the pod; it waits on that node, even if another one had a GPU for it"
        )
        self._node.start_pod(_LARGE, {_MEMORY: _LARGE_UNITS})
        self._stack.wait_for("it waits", lambda: _LARGE in self._node.waiting(_MEMORY))
        self._node.show_where(_LARGE)
        self._node.show_why(_LARGE)
        reason, _ = self._node.waiting(_MEMORY)[_LARGE]
        if reason != "NoDeviceFits":
            raise Broken(f"it waits for another reason: {reason}")
        self._node.end_pod(_LARGE)
        self._stack.wait_for("it is gone", lambda: not self._node.is_there(_LARGE))
        self._stack.wait_for("nothing waits", lambda: not self._node.waiting(_MEMORY))

    def _stays_pending(self) -> None:
        narrate("The same pod by the extender: it is bound nowhere, and its Event says why")
        self._node.start_pod(_LARGE, {_MEMORY: _LARGE_UNITS}, SCHEDULER)
        self._stack.wait_for("its Event says why", lambda: "no device has" in self._node.not_scheduled(_LARGE))
        self._node.show_where(_LARGE)
        self._node.show_not_scheduled(_LARGE)
        if where := self._node.assigned(_LARGE, _MEMORY)[0]:
            raise Broken(f"it was bound to {where}")

    def _one_ends(self) -> None:
        narrate(f"{_ENDS} ends: now there is room on its GPU, and the scheduler tries again by itself")
        before = self._node.free(_MEMORY)
        [gpu] = self._node.allocated(_MEMORY)[_ENDS]
        before[gpu] += _EIGHT[_ENDS]
        began = time.monotonic()
        self._node.end_pod(_ENDS)
        show_progress("nothing tells it when a device has room: it tries again after some seconds")
        self._stack.wait_for("the large pod holds units", lambda: _LARGE in self._node.holders())
        print(f"  it has its units {time.monotonic() - began:.1f} s after kubectl delete began")
        self._print_choice(_LARGE, _LARGE_UNITS, before)
        self._node.show("get", "poddevices", "-A")
        self._node.show_devices(_MEMORY)
        if mixed := [name for name, parts in self._node.allocated(_MEMORY).items() if len(parts) != 1]:
            raise Broken(f"units of two GPUs went to {mixed}")


def _why_not(units: int, other: str, free: int, chosen: int) -> str:
    """Why another GPU was not chosen. chosen: how many were free on the one that was."""
    if free < units:
        return f"{other} has {free} free, too few"
    left = f"on {other} {free - units} would be left"
    return f"{left}, just as many" if free == chosen else left
