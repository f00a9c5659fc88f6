"""`make demo`: the whole main job, in a few lines, on a real control plane with real plugins. Ends with a verdict."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from nodedevice_agent.plugins.simulated import control
from nodedevice_api import names

from hack.demo.demo_stack import start_stack
from hack.demo.narration import Broken, narrate, play, show, show_typed
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import FILES, GPU, NODE_A, NODE_B, Stack
from tests.cluster.observe import Observer, capacity
from tests.cluster.processes.loopback import fetch

_NAMESPACE = "nodedevice-demo"
_GPU_NODE_A = f"{NODE_A}.example.com.gpu"


def main() -> int:
    return play(_demo)


def _demo(folder: Path) -> str:
    narrate("A Kubernetes control plane, two nodes, an agent on each, the operator")
    with start_stack(folder) as stack:
        kubeconfig = stack.control_plane.admin_kubeconfig
        with Observer.nodes(kubeconfig) as nodes, Observer.node_devices(kubeconfig) as devices:
            _Demo(stack, nodes, devices).run()
    return "devices went from plugins to pods and back, nothing lost, nothing twice"


class _Demo:
    def __init__(self, stack: Stack, nodes: Observer, devices: Observer) -> None:
        self._stack = stack
        self._nodes = nodes
        self._devices = devices
        self._state_dir = stack.agents[NODE_A].folder

    def run(self) -> None:
        self._inventory()
        self._pods()
        self._one_too_many()
        self._break_and_repair()
        self._cordon()
        self._break_a_held_one()
        self._crash()
        self._events()
        self._end()

    # -- the story ------------------------------------------------------------------------------------------------------

    def _inventory(self) -> None:
        narrate("What the nodes have, on one screen")
        self._type("kubectl nodedevice")
        narrate("One NodeDevice for each resource on each node")
        self._show("get", "nodedevices")
        narrate("The scheduler sees it as the Nodes' capacity")
        columns = r"NAME:.metadata.name,GPU:.status.capacity.example\.com/gpu,DEV:.status.capacity.example\.com/dev"
        self._wait("the capacity is there", lambda: self._capacity(NODE_A) == 4 and self._capacity(NODE_B) == 2)
        self._show("get", "nodes", "-o", f"custom-columns={columns}")

    def _pods(self) -> None:
        narrate("Pods ask for devices; the default scheduler binds them, the agents allocate")
        self._stack.control_plane.add_namespace(_NAMESPACE)
        self._apply(train={GPU: 2}, infer={GPU: 1}, logger={FILES: 1})
        self._wait("three pods hold devices", lambda: len(self._json("get", "poddevices", "-A")) == 3)
        self._show("get", "poddevices", "-A")
        narrate("The same by device")
        self._type("kubectl nodedevice devices")

    def _one_too_many(self) -> None:
        narrate("One pod too many stays Pending; the reasons, and what would help")
        self._apply(**{"one-too-many": {GPU: 4}})
        path = '{.status.conditions[?(@.type=="PodScheduled")].message}'
        self._wait(
            "the scheduler has reported why",
            lambda: (
                "Insufficient"
                in self._kubectl("get", "pod", "one-too-many", "-n", _NAMESPACE, "-o", f"jsonpath={path}")
            ),
        )
        self._show("get", "pod", "one-too-many", "-n", _NAMESPACE)
        self._type(f"kubectl nodedevice why pod one-too-many -n {_NAMESPACE}")

    def _break_and_repair(self) -> None:
        device = self._free_one()
        narrate(f"A free device breaks: {device} on {NODE_A}")
        took = self._timed(device, healthy=False, becomes=3)
        print(f"  capacity of {NODE_A} went from 4 to 3 in {took * 1000:.0f} ms")
        self._type(f"kubectl nodedevice devices --node {NODE_A} --resource {GPU}")
        took = self._timed(device, healthy=True, becomes=4)
        print(f"  it recovers: back to 4 in {took * 1000:.0f} ms")

    def _cordon(self) -> None:
        device = self._free_one()
        narrate(f"An administrator cordons {device} of {NODE_A}, and uncordons it")
        self._type(f'kubectl nodedevice cordon {NODE_A} --device {device} --reason "fan"')
        self._wait("the capacity is one less", lambda: self._capacity(NODE_A) == 3)
        self._type(f"kubectl nodedevice devices --node {NODE_A} --resource {GPU}")
        event = ("get", "events", "-A", "--field-selector", "reason=DevicesCordoned")
        self._wait("an Event reports it", lambda: device in self._kubectl(*event))
        self._show(*event)
        self._type(f"kubectl nodedevice uncordon {NODE_A} --device {device}")
        self._wait("the capacity is back", lambda: self._capacity(NODE_A) == 4)

    def _break_a_held_one(self) -> None:
        holders = self._held(NODE_A)
        if not holders:
            raise Broken(f"no pod holds a device on {NODE_A}")
        device = sorted(holders)[0]
        narrate(f"A held device breaks: {device}. Its pod keeps it, the capacity stays, and it shows")
        control.set_health(self._state_dir, GPU, device, healthy=False)
        self._wait("it shows", lambda: any("Unhealthy" in health for health in self._pod_health()))
        self._type("kubectl nodedevice holders -A")
        self._type("kubectl nodedevice")
        if self._capacity(NODE_A) != 4:
            raise Broken(f"the capacity of {NODE_A} fell below the number of devices in use")
        control.set_health(self._state_dir, GPU, device, healthy=True)
        self._wait("it has recovered", lambda: set(self._pod_health()) == {"Healthy"})
        # Events come a moment later: what breaks or recovers together is one Event
        self._wait("the recovery is reported", lambda: self._recovery_reported_on(device) == {names.NODE_DEVICE, "Pod"})

    def _crash(self) -> None:
        narrate(f"The agent of {NODE_A} is killed with -9 and started again")
        before = self._allocations()
        version = self._json("get", "nodedevice", _GPU_NODE_A)[0]["metadata"]["resourceVersion"]
        agent = self._stack.agents[NODE_A]
        agent.process.kill()
        agent.start()
        self._wait(
            "its plugins are back",
            lambda: "4" in self._metric(agent.address, f'{{resource_name="{GPU}",state="total"}}'),
        )
        after = self._allocations()
        twice = [key for key, times in Counter(key for key, _ in after).items() if times > 1]
        if after != before or twice:
            raise Broken(f"allocations were {before} and are {after}")
        now = self._json("get", "nodedevice", _GPU_NODE_A)[0]["metadata"]["resourceVersion"]
        print(
            f"  {len(after)} devices held before and after, the same ones; resourceVersion {version} before, {now} after"
        )
        if now != version:
            raise Broken("the restart wrote although nothing had changed")

    def _events(self) -> None:
        narrate("What an administrator reads afterwards")
        ours = f"reportingComponent={names.OPERATOR_FIELD_MANAGER}"
        self._show("get", "events", "-A", "--field-selector", ours, "--sort-by", ".metadata.creationTimestamp")

    def _end(self) -> None:
        narrate("The pods are deleted: their devices are free")
        began = time.monotonic()
        self._kubectl("delete", "pods", "--all", "-n", _NAMESPACE, "--wait=false")
        freed = self._devices.wait(lambda seen: self._all_free(), since=began)
        print(f"  all free {(freed.at - began) * 1000:.0f} ms after kubectl delete began")
        self._wait("no PodDevice is left", lambda: not self._json("get", "poddevices", "-A"))
        self._show("get", "nodedevices")

    # -- output and signals ----------------------------------------------------------------------------------------------

    def _timed(self, device: str, *, healthy: bool, becomes: int) -> float:
        began = time.monotonic()
        control.set_health(self._state_dir, GPU, device, healthy)
        return self._nodes.wait(lambda seen: capacity(seen, NODE_A, GPU) == becomes, since=began).at - began

    def _type(self, command: str) -> None:
        show_typed(self._stack.control_plane, command)

    def _pod_health(self) -> list[str]:
        return [found["status"]["health"] for found in self._json("get", "poddevices", "-A")]

    def _recovery_reported_on(self, device: str) -> set[str]:
        """Kinds of the objects on which an Event says that this device of NODE_A has recovered."""
        found = self._json("get", "events", "-A", "--field-selector", "reason=DeviceRecovered")
        on_node = [each for each in found if f" on {NODE_A} " in each["message"]]
        return {each["involvedObject"]["kind"] for each in on_node if device in each["message"]}

    def _capacity(self, node_name: str) -> int:
        return int(self._json("get", "node", node_name)[0]["status"]["capacity"].get(GPU, -1))

    def _free_one(self) -> str:
        """The last device of node-a that no pod holds."""
        listed: set[str] = {d["id"] for d in self._json("get", "nodedevice", _GPU_NODE_A)[0]["status"]["devices"]}
        return max(listed - self._held(NODE_A))

    def _held(self, node_name: str) -> set[str]:
        return {device for (name, device), _ in self._allocations() if name == f"{node_name}.example.com.gpu"}

    def _allocations(self) -> list[tuple[tuple[str, str], str]]:
        """((NodeDevice, device ID), pod) of every device held, sorted."""
        return sorted(
            ((o["metadata"]["name"], device), a["name"])
            for o in self._json("get", "nodedevices")
            for a in o["status"]["allocations"]
            for device in a["deviceIDs"]
        )

    def _all_free(self) -> bool:
        return not self._allocations()

    def _metric(self, address: str, labels: str) -> str:
        lines = fetch(f"http://{address}/metrics")[1].splitlines()
        return " ".join(
            line.split()[-1] for line in lines if line.startswith("nodedevice_agent_devices") and labels in line
        )

    def _apply(self, **limits: dict[str, int]) -> None:
        """Pods by name, with their limits."""
        pods = [a_pod(name, _NAMESPACE, limit) for name, limit in limits.items()]
        self._stack.control_plane.apply(yaml.safe_dump_all(pods))

    def _wait(self, what: str, is_so: Any) -> None:
        self._stack.wait_for(what, is_so)

    def _kubectl(self, *arguments: str) -> str:
        return self._stack.control_plane.kubectl(*arguments)

    def _json(self, *arguments: str) -> list[dict[str, Any]]:
        found = json.loads(self._kubectl(*arguments, "-o", "json"))
        return list(found["items"]) if found["kind"].endswith("List") else [found]

    def _show(self, *arguments: str) -> None:
        show(self._stack.control_plane, *arguments)
