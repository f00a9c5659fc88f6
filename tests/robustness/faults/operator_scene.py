"""A Node, its NodeDevice and pods, for which an operator works: capacity, repairs, conditions, PodDevices, Events, its pages.

A round changes each of these and waits until the API shows what the operator makes of it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode
from tests.integration.product_process import ProductProcess
from tests.robustness.faults.trial import wait_pages

_DEVICES = 4


class OperatorScene:
    """Everything around one operator; use `operator_scene`."""

    def __init__(self, operator: OperatorProcess, proxy: FaultProxy, node: PlayedNode, pods: Pods) -> None:
        self._operator, self._proxy, self._node, self._pods = operator, proxy, node, pods
        self._rounds = 0

    @property
    def program(self) -> ProductProcess:
        return self._operator

    async def round(self) -> None:
        """Raises TimeoutError, which says what did not happen."""
        await asyncio.to_thread(self._round)

    def _round(self) -> None:
        self._rounds += 1
        self._proxy.cut()
        node, name = self._node, f"{self._node.name}-{self._rounds}"
        node.advertise(_DEVICES - 1, broken=1)
        # another one each time: one that does it again and again is given way to
        node.kubelet_writes(f"writer-{self._rounds}", capacity={GPU: "0"}, allocatable={GPU: "0"})
        node.wait_shown(_DEVICES - 1)
        uid = self._pods.run(name, node.name)
        node.publish(healthy=_DEVICES, allocations=[self._pods.holds(name, uid, "gpu-0")])
        node.wait_shown(_DEVICES)
        self._pods.wait_devices(name, "gpu-0")
        node.wait_events("DevicesAllocated", about=name, namespace=self._pods.namespace)
        self._pods.remove(name)
        node.advertise(_DEVICES)
        self._pods.wait_gone(name)
        node.wait_condition("Ready", "True")
        wait_pages(self._operator.get)


@contextlib.contextmanager
def operator_scene(
    control_plane: ControlPlane, proxy: FaultProxy, namespace: str, folder: Path
) -> Iterator[OperatorScene]:
    """A scene with an operator that leads; all of it ends with the block."""
    operator = OperatorProcess(control_plane, folder)
    proxy.lead(folder / "kubeconfig")
    with contextlib.closing(operator), PlayedNode(control_plane) as node:
        operator.start()
        node.settle()
        yield OperatorScene(operator, proxy, node, Pods(control_plane, namespace))
