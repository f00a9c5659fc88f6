"""`make demo GPU=dgx-h100`: GPUs from driver to pod and back, on a real control plane; the driver is a library of ours.

Everything else is real: pynvml in the plugin's own process, the agent, the operator, the scheduler. Ends with a verdict. Of a
machine on which no GPU can be used it shows how that is reported.
"""

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hack.demo import gpu_mig, gpu_shares
from hack.demo.demo_stack import start_stack
from hack.demo.narration import Broken, narrate, play, show, show_typed
from hack.fake_nvml.library import FakeNvml, machines, put_on_the_bus
from hack.fake_nvml.machines import described
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import Stack
from tests.cluster.observe import Observer, capacity

_GPU = "nvidia.com/gpu"
_NODE = "gpu-node"
_NODE_DEVICE = f"{_NODE}.nvidia.com.gpu"
_NAMESPACE = "demo"
# of the agent's log
_IDLE = "no GPU found"
# whose driver reports recovery actions, row remapping and a fabric
_KNOWING = "dgx-h100"
# of machines whose GPUs are given out in parts
_STORIES = {"mig-a100": gpu_mig.demo, "shares": gpu_shares.demo}


def main(machine: str) -> int:
    if machine in _STORIES:
        return play(_STORIES[machine])
    if machine not in machines():
        print(f"there is no machine {machine!r}; there are: {', '.join(sorted({*machines(), *_STORIES}))}")
        return 2
    return play(partial(_demo, machine))


def _demo(machine: str, folder: Path) -> str:
    gpus = FakeNvml(folder / "nvml", machine)
    os.environ.update(gpus.environment())
    narrate(f"A Kubernetes control plane, a node that is the machine {machine}, its agent, the operator")
    plugins = {_NODE: _plugins(machine, folder / "host")}
    with (
        start_stack(folder, plugins=plugins) as stack,
        Observer.nodes(stack.control_plane.admin_kubeconfig) as nodes,
    ):
        return _Demo(stack, nodes, gpus, machine).run()


def _plugins(machine: str, host: Path) -> dict[str, Any]:
    """Settings of the agent's plugins. A machine whose driver does not work has a GPU all the same: its PCI bus shows it."""
    if described(machine)[1]:
        return {"nvml": {"pollSeconds": 1}}
    if machine != "none":
        put_on_the_bus(host)
    return {"nvml": {}, "hostRoot": str(host)}


class _Demo:
    def __init__(self, stack: Stack, nodes: Observer, gpus: FakeNvml, machine: str) -> None:
        self._stack, self._nodes, self._gpus, self._machine = stack, nodes, gpus, machine
        self._scores, self._numa_nodes = described(machine)
        self._count = len(self._numa_nodes)

    def run(self) -> str:
        """Returns the verdict. Raises Broken, and what a cluster that is broken raises."""
        if self._count == 0:
            return self._no_gpu()
        self._inventory()
        self._pod()
        uuid = self._xid()
        self._recovery(uuid)
        if self._machine == _KNOWING:
            self._what_the_driver_knows()
        return "GPUs went from the driver to pods and back"

    def _no_gpu(self) -> str:
        if self._machine == "none":
            narrate("The driver finds no GPU: the agent says so once, and there is no NodeDevice")
            log = self._stack.agents[_NODE].process.log
            self._stack.wait_for("the agent says so", lambda: _IDLE in log.read_text())
            print("  " + next(line for line in log.read_text().splitlines() if _IDLE in line))
            self._show("get", "nodedevices")
            return "a node without GPUs is left in peace"
        narrate("There is a GPU on the PCI bus, and its driver does not work: the NodeDevice says why")
        why = '{.status.conditions[?(@.type=="Healthy")].message}'
        command = ("get", "nodedevice", _NODE_DEVICE, "-o", f"jsonpath={why}", "--ignore-not-found")
        self._stack.wait_for("the reason is shown", lambda: "driver" in self._stack.control_plane.kubectl(*command))
        columns = 'custom-columns=NAME:.metadata.name,PROBLEM:.status.conditions[?(@.type=="Healthy")].message'
        self._show("get", "nodedevice", _NODE_DEVICE, "-o", columns)
        return "a driver that does not work is reported, with the remedy"

    def _inventory(self) -> None:
        narrate("The GPUs as the driver describes them")
        self._show("get", "nodedevice", _NODE_DEVICE)
        self._type(f"kubectl nodedevice devices --node {_NODE} -o wide")
        self._nodes.wait(lambda seen: capacity(seen, _NODE, _GPU) == self._count, since=0.0)

    def _pod(self) -> None:
        narrate("A pod asks for two: it gets two that are joined best")
        self._stack.control_plane.add_namespace(_NAMESPACE)
        self._stack.control_plane.apply(yaml.safe_dump(a_pod("train", _NAMESPACE, {_GPU: 2})))
        self._stack.wait_for("the pod has its GPUs", lambda: len(self._held()) == 2)
        self._show("get", "poddevices", "-A")
        one, other = sorted(self._held())
        score, best = self._scores[(one, other)], max(self._scores.values())
        print(f"  {one} and {other}: {score // 100} NVLinks, score {score}; the best pair of this machine has {best}")
        if score != best:
            raise Broken("another pair is joined better")

    def _xid(self) -> str:
        held = self._held()
        uuid = min(self._numa_nodes, key=lambda gpu: (gpu in held, gpu))
        narrate(f"The driver reports Xid 79 on {uuid}, which {'the pod holds' if uuid in held else 'is free'}")
        began = time.monotonic()
        self._gpus.xid(uuid, 79)
        self._until_healthy(self._count - 1, uuid, began)
        self._type(f"kubectl nodedevice devices --node {_NODE}")
        self._show("get", "nodedevice", _NODE_DEVICE)
        return uuid

    def _recovery(self, uuid: str) -> None:
        narrate(
            "It is reset, as `nvidia-smi --gpu-reset` would: the driver's counters start again, and it counts again"
        )
        began = time.monotonic()
        self._gpus.reset(uuid)
        self._until_healthy(self._count, uuid, began)
        self._show("get", "nodedevice", _NODE_DEVICE)

    def _what_the_driver_knows(self) -> None:
        held = self._held()
        gpus = [uuid for uuid in sorted(self._numa_nodes) if uuid not in held][:4]
        narrate(
            "Xid 94, a contained memory error: its program has ended, the driver requests nothing, and the GPU stays"
        )
        self._gpus.xid(gpus[0], 94)
        print(f"  {gpus[0]} counts {self._ecc_errors(gpus[0])} uncorrectable ECC error", flush=True)
        # in order: once this one is out of service, the Xid before it has been handled
        narrate(
            "Xid 109, a context switch timeout: our list takes the GPU out at once, and a second later the driver's word counts"
        )
        began = time.monotonic()
        self._gpus.xid(gpus[1], 109)
        self._until_healthy(self._count - 1, gpus[1], began)
        self._until_reason(gpus[1], "ResetRequired")
        if gpus[0] in self._unhealthy():
            raise Broken("Xid 94 took its GPU out of service")
        narrate("A row of memory that could not be replaced by a spare one, as the driver shows at each reading")
        self._gpus.set(gpus[2], remap_failed=1)
        self._until_reason(gpus[2], "RowRemapFailed")
        narrate("A GPU that is not in the fabric of its NVSwitches yet")
        self._gpus.set(gpus[3], fabric_state=2)
        self._until_reason(gpus[3], "FabricNotReady")
        self._show("get", "nodedevice", _NODE_DEVICE)
        narrate("The fabric is complete, the first is reset, the third was replaced: all are used again")
        began = time.monotonic()
        self._gpus.set(gpus[3], fabric_state=3)
        self._gpus.reset(gpus[1])
        self._gpus.set(gpus[2], remap_failed=0)
        self._until_healthy(self._count, gpus[1], began)
        self._show("get", "nodedevice", _NODE_DEVICE)

    def _ecc_errors(self, uuid: str) -> int:
        """As nvidia-smi would show them, in a process of its own."""
        ask = (
            "import sys; from pynvml import *; nvmlInit(); "
            "print(nvmlDeviceGetTotalEccErrors(nvmlDeviceGetHandleByUUID(sys.argv[1]), 1, 0))"
        )
        done = subprocess.run([sys.executable, "-c", ask, uuid], check=True, capture_output=True, text=True)
        return int(done.stdout)

    def _until_reason(self, uuid: str, reason: str) -> None:
        self._stack.wait_for(f"{reason} is shown", lambda: self._unhealthy().get(uuid, ("", ""))[0] == reason)
        print(f"  {uuid} {': '.join(self._unhealthy()[uuid])}", flush=True)

    def _unhealthy(self) -> dict[str, tuple[str, str]]:
        """Reason and message, by UUID."""
        every = self._status()["devices"]
        return {
            one["id"]: (one.get("reason", ""), one.get("message", "")) for one in every if one["health"] == "Unhealthy"
        }

    # -- output ----------------------------------------------------------------------------------------------------------

    def _until_healthy(self, expected: int, changed: str, began: float) -> None:
        if changed in self._held():
            self._stack.wait_for(f"{expected} are healthy", lambda: self._healthy() == expected)
            print(f"  {expected} of {self._count} are healthy; the pod keeps its devices, and capacity stays the same")
            return
        seen = self._nodes.wait(lambda now: capacity(now, _NODE, _GPU) == expected, since=began)
        print(f"  capacity of {_NODE} is {expected} after {(seen.at - began) * 1000:.0f} ms")

    def _held(self) -> list[str]:
        return [device for held in self._status().get("allocations", ()) for device in held["deviceIDs"]]

    def _healthy(self) -> int:
        return int(self._status()["healthy"])

    def _status(self) -> Any:
        return json.loads(self._stack.control_plane.kubectl("get", "nodedevice", _NODE_DEVICE, "-o", "json"))["status"]

    def _type(self, command: str) -> None:
        show_typed(self._stack.control_plane, command)

    def _show(self, *arguments: str) -> None:
        show(self._stack.control_plane, *arguments)
